#include "tests/train/proof_model.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "gradwire/host/training_host.h"
#include "gradwire/train/data_parallel/data_parallel.h"

namespace gradwire::test {
namespace {

constexpr std::int64_t kGlobalBatch = 16;

std::unique_ptr<torch::optim::Optimizer> optimizer_for(Rule rule,
                                                       std::vector<torch::Tensor> parameters) {
  if (rule == Rule::adam) {
    return std::make_unique<torch::optim::Adam>(std::move(parameters), 1e-3);
  }
  return std::make_unique<torch::optim::SGD>(std::move(parameters),
                                             torch::optim::SGDOptions(0.05).momentum(0.9));
}

struct ProofBatch {
  torch::Tensor inputs;
  torch::Tensor targets;
};

/// The same on every rank; each takes its slice.
ProofBatch problem_of_step(int step) {
  auto generator = at::detail::createCPUGenerator(static_cast<std::uint64_t>(step) + 17);
  const auto inputs = torch::randn({kGlobalBatch, 1, 8, 8}, generator, torch::kFloat64);
  const auto targets = torch::randint(5, {kGlobalBatch}, generator, torch::kInt64);
  return {inputs, targets};
}

void initialise_proof(torch::nn::Module& module, std::uint64_t seed) {
  const torch::NoGradGuard no_grad;
  auto generator = at::detail::createCPUGenerator(seed);
  for (auto& parameter : module.parameters()) parameter.normal_(0, 0.2, generator);
  for (auto& buffer : module.buffers()) {
    if (buffer.is_floating_point()) buffer.uniform_(0.5, 1.5, generator);
  }
}

/// In the proof the first 8 samples of every third batch take the branch.
std::int64_t branching_in(int step, std::int64_t offset, std::int64_t samples) {
  const std::int64_t branching = step % 3 == 0 ? 8 : 0;
  return std::clamp<std::int64_t>(branching - offset, 0, samples);
}

}  // namespace

ProofNetImpl::ProofNetImpl() {
  conv = register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 4, 3).padding(1)));
  norm = register_module("norm", torch::nn::BatchNorm2d(4));
  first = register_module("first", torch::nn::Linear(64, 64));
  tied = register_parameter("tied", first->weight);
  branch = register_module("branch", torch::nn::Linear(64, 64));
  never = register_module("never", torch::nn::Linear(64, 3));
  head = register_module("head", torch::nn::Linear(64, 5));
  to(torch::kFloat64);
}

torch::Tensor ProofNetImpl::forward(const torch::Tensor& inputs, std::int64_t branching) {
  await_parameters(*conv);
  await_parameters(*norm);
  auto x = torch::relu(norm(conv(inputs)));
  x = torch::avg_pool2d(x, 2).flatten(1);
  await_parameters(*first);
  x = torch::relu(first(x));
  x = torch::relu(torch::matmul(x, tied));
  if (branching > 0) {
    await_parameters(*branch);
    const auto rest = x.narrow(0, branching, x.size(0) - branching);
    x = torch::cat({branch(x.narrow(0, 0, branching)), rest});
  }
  await_parameters(*head);
  return head(x);
}

Parameters train_proof_net(const ProcessGroup& group, Rule rule, int steps,
                           const ProofOptions& options) {
  const int rank = group->getRank();
  ProofNet net;
  initialise_proof(*net, static_cast<std::uint64_t>(rank));  // All must start with rank 0's values.
  const OptimizerFactory factory = [rule](std::vector<torch::Tensor> parameters) {
    return optimizer_for(rule, parameters);
  };
  DataParallel model(net, {.process_group = group,
                           .bucket_cap_mb = 0.01,
                           .find_unused_parameters = true,
                           .optimizer = options.optimizer_per_bucket ? factory : OptimizerFactory(),
                           .overlap = options.overlap,
                           .forward_awaits = options.forward_awaits});
  net->norm->eval();
  // Each parameter once: parameters() has the tied one twice, and would step it twice.
  std::vector<torch::Tensor> parameters;
  for (const auto& parameter : trainable_parameters(*net)) parameters.push_back(parameter.tensor);
  const auto optimizer = options.optimizer_per_bucket ? nullptr : optimizer_for(rule, parameters);
  const auto parts = options.accumulation_steps;
  const auto samples = kGlobalBatch / group->getSize() / parts;
  for (int step = 0; step < steps; ++step) {
    const auto [inputs, targets] = problem_of_step(step);
    if (optimizer) optimizer->zero_grad();
    for (int part = 0; part < parts; ++part) {
      std::optional<NoSync> alone;
      if (part + 1 < parts) alone.emplace(model.host());
      const auto offset = (rank * parts + part) * samples;
      const auto output =
          model(inputs.narrow(0, offset, samples), branching_in(step, offset, samples));
      const auto loss = torch::cross_entropy_loss(output, targets.narrow(0, offset, samples));
      (loss / parts).backward();
    }
    optimizer ? (void)optimizer->step() : model.step();
  }
  model.finish();
  Parameters result;
  for (const auto& item : net->named_parameters())
    result[item.key()] = item.value().detach().clone();
  return result;
}

double largest_difference(const Parameters& a, const Parameters& b) {
  double largest = a.size() == b.size() ? 0 : std::numeric_limits<double>::infinity();
  for (const auto& [name, tensor] : a) {
    largest = std::max(largest, (tensor - b.at(name)).abs().max().item<double>());
  }
  return largest;
}

}  // namespace gradwire::test
