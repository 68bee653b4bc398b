#include "gradwire/train/federated/global_model.h"

#include <map>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gradwire/base/check.h"
#include "gradwire/base/error.h"
#include "gradwire/base/refuse.h"
#include "gradwire/train/checkpoint/optimizer_state.h"
#include "gradwire/train/checkpoint/safetensors.h"

namespace gradwire {
namespace {

constexpr const char* kFederatedKey = "federated";

/// FedAvg.
std::unique_ptr<torch::optim::Optimizer> mean_of_models(
    const std::vector<torch::Tensor>& parameters) {
  return std::make_unique<torch::optim::SGD>(parameters, torch::optim::SGDOptions(1));
}

}  // namespace

GlobalModel::GlobalModel(const std::vector<NamedTensor>& parameters,
                         const std::vector<NamedTensor>& averaged,
                         const GlobalModelOptions& options)
    : options_(options), parameter_count_(parameters.size()) {
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> parts;
  for (const auto* list : {&parameters, &averaged})
    for (const NamedTensor& one : *list) parts.push_back(one.tensor.detach().reshape({-1}));
  flat_ = torch::cat(parts).to(torch::kFloat32).contiguous();
  std::int64_t begin = 0;
  for (const auto* list : {&parameters, &averaged}) {
    for (const NamedTensor& one : *list) {
      const std::int64_t count = one.tensor.numel();
      tensors_.push_back({one.name, flat_.narrow(0, begin, count).view(one.tensor.sizes())});
      begin += count;
    }
    if (list == &parameters) parameter_elements_ = begin;
  }
  quantizers_.emplace(options_.update, static_cast<std::size_t>(flat_.numel()), options_.seed);
  gradient_ = torch::zeros({parameter_elements_});
  begin = 0;
  for (std::size_t i = 0; i < parameter_count_; ++i) {
    torch::Tensor& tensor = tensors_[i].tensor;
    tensor.mutable_grad() = gradient_.narrow(0, begin, tensor.numel()).view(tensor.sizes());
    begin += tensor.numel();
  }
  const OptimizerFactory optimizer = options_.optimizer ? options_.optimizer : mean_of_models;
  optimizer_ = optimizer(
      {tensors_.begin(), tensors_.begin() + static_cast<std::ptrdiff_t>(parameter_count_)});
}

federated::Metrics GlobalModel::apply(const federated::Contribution& sum, std::int64_t weight,
                                      const federated::UpdateQuantizer& quantizer) {
  const torch::NoGradGuard no_grad;
  const federated::Metrics metrics = federated::metrics_of(sum[1]);
  std::vector<float> mean = quantizer.mean(sum[0], weight);
  GRADWIRE_CHECK(std::ssize(mean) == flat_.numel());
  torch::Tensor update = torch::from_blob(mean.data(), {flat_.numel()});
  if (options_.normalizes) update.mul_(metrics.weighted_steps / static_cast<double>(weight));
  gradient_.copy_(update.narrow(0, 0, parameter_elements_)).neg_();
  const std::int64_t rest = flat_.numel() - parameter_elements_;
  if (rest > 0)
    flat_.narrow(0, parameter_elements_, rest).add_(update.narrow(0, parameter_elements_, rest));
  optimizer_->step();
  ++version_;
  quantizers_->add(metrics);
  return metrics;
}

void GlobalModel::skip() {
  ++version_;
  quantizers_->resume(1);  // Any range: the next round is not the first.
}

std::vector<NamedTensor> GlobalModel::states() {
  std::vector<NamedTensor> states;
  for (std::size_t i = 0; i < parameter_count_; ++i)
    for (const auto& [name, tensor] : states_of(*optimizer_, tensors_[i].tensor))
      states.push_back({fmt::format("optimizer.{}.{}", tensors_[i].name, name), tensor});
  return states;
}

void GlobalModel::save(const std::filesystem::path& path, const std::string& run) {
  std::vector<NamedTensor> all = tensors_;
  for (NamedTensor& state : states()) all.push_back(std::move(state));
  const nlohmann::ordered_json numbers = {
      {"version", version_}, {"mean_square", quantizers_->mean_square()}, {"run", run}};
  save_safetensors(path, all, {{kFederatedKey, numbers.dump()}});
}

std::string GlobalModel::load(const std::filesystem::path& path,
                              const std::function<void(const std::string&)>& check) {
  const torch::NoGradGuard no_grad;
  const SafetensorsFile file = load_safetensors(path);
  const auto described = file.metadata.find(kFederatedKey);
  if (described == file.metadata.end())
    refuse("{} is a model, not a checkpoint of federated learning", path.string());
  const auto numbers = nlohmann::json::parse(described->second);
  if (check) check(numbers.at("run"));
  std::vector<NamedTensor> all = tensors_;
  if (numbers.at("version") > 0) make_states(*optimizer_);
  for (NamedTensor& state : states()) all.push_back(std::move(state));
  for (NamedTensor& one : all) {
    const auto found = file.tensors.find(one.name);
    if (found == file.tensors.end() || found->second.sizes() != one.tensor.sizes()) {
      refuse("{} has no tensor {} of this shape: it is of another model or optimizer",
             path.string(), one.name);
    }
    one.tensor.copy_(found->second);
  }
  version_ = numbers.at("version");
  quantizers_->resume(numbers.at("mean_square"));
  return numbers.at("run");
}

FederatedTensors federated_tensors(const torch::nn::Module& module) {
  FederatedTensors tensors{.parameters = trainable_parameters(module)};
  for (NamedTensor& buffer : all_buffers(module))
    if (buffer.tensor.is_floating_point()) tensors.averaged.push_back(std::move(buffer));
  for (const auto* list : {&tensors.parameters, &tensors.averaged}) {
    for (const auto& [name, tensor] : *list) {
      if (tensor.scalar_type() == torch::kFloat32) continue;
      throw Exception(ErrorKind::unsupported,
                      fmt::format("federated learning has parameters of type float32; {} is {}",
                                  name, c10::toString(tensor.scalar_type())));
    }
  }
  return tensors;
}

}  // namespace gradwire
