#include "gradwire/train/local_sgd/local_sgd.h"

#include <algorithm>
#include <utility>

#include "gradwire/torch/vector_math.h"
#include "gradwire/train/data_parallel/model_check.h"
#include "gradwire/train/exchange/torch_exchange.h"

namespace gradwire {
namespace {

constexpr const char* kLocalSgd = "LocalSgd";

std::vector<std::size_t> plan_for(const std::vector<NamedTensor>& parameters,
                                  std::int64_t fragments) {
  std::vector<std::int64_t> sizes;
  for (const auto& parameter : parameters) sizes.push_back(parameter.tensor.numel());
  return plan_fragments(sizes, fragments);
}

std::vector<torch::Tensor> tensors_of(const std::vector<NamedTensor>& parameters) {
  std::vector<torch::Tensor> tensors;
  for (const auto& parameter : parameters) tensors.push_back(parameter.tensor);
  return tensors;
}

}  // namespace

LocalSgd::LocalSgd(std::vector<NamedTensor> parameters, ProcessGroup group,
                   const LocalSgdOptions& options)
    : parameters_(std::move(parameters)),
      group_(std::move(group)),
      clock_(options.clock),
      optimizer_{.learning_rate = options.steps.outer_learning_rate,
                 .momentum = options.steps.outer_momentum},
      mixing_(options.steps.mixing) {
  const StreamingSchedule schedule(options.steps);
  const torch::NoGradGuard no_grad;
  initialize_vector_math();
  check_same_model(kLocalSgd, *group_, parameters_);
  broadcast_tensors(*group_, parameters_);
  make_exchange(lay_out(options), options);
  StepHost& host = *this;
  engine_ = std::make_unique<LocalStepEngine>(schedule, fragment_of_, *exchange_, host, *clock_);
}

ArgumentName LocalSgd::name() const {
  return {kLocalSgd, "parameters", group_->getRank()};
}

std::vector<UnitShape> LocalSgd::lay_out(const LocalSgdOptions& options) {
  const auto plan = plan_for(parameters_, options.steps.fragments);
  const bool compress = options.steps.codec != "none";
  std::vector<UnitShape> shapes;
  for (std::size_t fragment = 0; fragment < static_cast<std::size_t>(options.steps.fragments);
       ++fragment) {
    std::vector<NamedTensor> here;
    for (std::size_t i = 0; i < plan.size(); ++i) {
      if (plan[i] == fragment) here.push_back(parameters_[i]);
    }
    auto layout =
        lay_out_buckets(here, kBundleLimits, compress, options.codec_min_elements, name());
    for (std::size_t b = 0; b < layout.buckets.size(); ++b) {
      std::vector<NamedTensor> members;
      for (const auto index : layout.members[b]) members.push_back(here[index]);
      add_bundle(std::move(layout.buckets[b]), std::move(members));
      fragment_of_.push_back(fragment);
      shapes.push_back(std::move(layout.shapes[b]));
    }
  }
  return shapes;
}

void LocalSgd::add_bundle(Bucket difference, std::vector<NamedTensor> parameters) {
  const auto tensors = tensors_of(parameters);
  Bundle bundle{.parameters = std::move(parameters),
                .outer = Bucket(tensors),
                .velocity = std::nullopt,
                .difference = std::move(difference)};
  for (std::size_t k = 0; k < tensors.size(); ++k) bundle.outer.put(tensors[k], k, 1);
  if (optimizer_.has_velocity()) bundle.velocity.emplace(tensors);
  bundles_.push_back(std::move(bundle));
}

void LocalSgd::make_exchange(const std::vector<UnitShape>& shapes, const LocalSgdOptions& options) {
  std::vector<torch::Tensor> flats;
  for (const auto& bundle : bundles_) flats.push_back(bundle.difference.numbers());
  exchange_ = torch_exchange(kLocalSgd, group_, flats, shapes,
                             {.codec = options.steps.codec, .seed = options.seed}, options.trace);
  if (!exchange_->traits().averages) scale_ = 1.0 / group_->getSize();
}

void LocalSgd::step() {
  const torch::NoGradGuard no_grad;
  engine_->step_done();
}

StepHost::Gradients LocalSgd::gradients(std::size_t unit) {
  auto& bundle = bundles_[unit];
  for (std::size_t k = 0; k < bundle.parameters.size(); ++k) {
    auto place = bundle.difference.view(k);
    torch::sub_out(place, bundle.outer.view(k), bundle.parameters[k].tensor);
    if (scale_ != 1) place.mul_(scale_);
  }
  return {.whole = lend_on_device(bundle.difference.numbers(), name())};
}

bool LocalSgd::step(std::size_t unit) {
  auto& bundle = bundles_[unit];
  optimizer_.step(bundle.outer.flat(), bundle.velocity ? bundle.velocity->flat() : torch::Tensor(),
                  bundle.difference.flat());
  apply_outer(bundle, mixing_);
  return true;
}

void LocalSgd::apply_outer(const Bundle& bundle, double mixing) {
  for (std::size_t k = 0; k < bundle.parameters.size(); ++k) {
    torch::Tensor own = bundle.parameters[k].tensor;
    if (mixing > 0) {
      own.lerp_(bundle.outer.view(k), 1 - mixing);
    } else {
      own.copy_(bundle.outer.view(k));
    }
  }
}

void LocalSgd::synchronize() {
  const torch::NoGradGuard no_grad;
  engine_->synchronize();
  for (const auto& bundle : bundles_) apply_outer(bundle, 0);
}

}  // namespace gradwire
