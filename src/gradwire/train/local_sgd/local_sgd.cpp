#include "gradwire/train/local_sgd/local_sgd.h"

#include <algorithm>
#include <utility>

#include "gradwire/gradient/trace_averager.h"
#include "gradwire/torch/vector_math.h"
#include "gradwire/train/data_parallel/group_averager.h"
#include "gradwire/train/data_parallel/model_check.h"

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
      schedule_(options.steps),
      optimizer_{.learning_rate = options.steps.outer_learning_rate,
                 .momentum = options.steps.outer_momentum},
      mixing_(options.steps.mixing) {
  const torch::NoGradGuard no_grad;
  initialize_vector_math();
  check_same_model(kLocalSgd, *group_, parameters_);
  broadcast_tensors(*group_, parameters_);
  auto shapes = lay_out(options);
  std::vector<torch::Tensor> flats;
  for (const auto& bundle : bundles_) flats.push_back(bundle.difference.numbers());
  averager_ = trace_averager(averager_for(kLocalSgd, group_, flats, std::move(shapes),
                                          {.codec = options.steps.codec, .seed = options.seed}),
                             options.trace);
  const bool averages = std::ranges::all_of(
      flats, [this](const auto& flat) { return can_average(*group_, flat.device().type()); });
  if (!averages) scale_ = 1.0 / group_->getSize();
}

ArgumentName LocalSgd::name() const {
  return {kLocalSgd, "parameters", group_->getRank()};
}

std::vector<BucketShape> LocalSgd::lay_out(const LocalSgdOptions& options) {
  const auto plan = plan_for(parameters_, options.steps.fragments);
  const bool compress = options.steps.codec != "none";
  std::vector<BucketShape> shapes;
  fragments_.resize(static_cast<std::size_t>(options.steps.fragments));
  for (std::size_t fragment = 0; fragment < fragments_.size(); ++fragment) {
    std::vector<NamedTensor> here;
    for (std::size_t i = 0; i < plan.size(); ++i) {
      if (plan[i] == fragment) here.push_back(parameters_[i]);
    }
    auto layout =
        lay_out_buckets(here, kBundleLimits, compress, options.codec_min_elements, name());
    for (std::size_t b = 0; b < layout.buckets.size(); ++b) {
      std::vector<NamedTensor> members;
      for (const auto index : layout.members[b]) members.push_back(here[index]);
      add_bundle(std::move(layout.buckets[b]), std::move(members), fragment);
      shapes.push_back(std::move(layout.shapes[b]));
    }
  }
  return shapes;
}

void LocalSgd::add_bundle(Bucket difference, std::vector<NamedTensor> parameters,
                          std::size_t fragment) {
  const auto tensors = tensors_of(parameters);
  Bundle bundle{.parameters = std::move(parameters),
                .outer = Bucket(tensors),
                .velocity = std::nullopt,
                .difference = std::move(difference)};
  for (std::size_t k = 0; k < tensors.size(); ++k) bundle.outer.put(tensors[k], k, 1);
  if (optimizer_.has_velocity()) bundle.velocity.emplace(tensors);
  fragments_[fragment].bundles.push_back(bundles_.size());
  bundles_.push_back(std::move(bundle));
}

void LocalSgd::step() {
  const torch::NoGradGuard no_grad;
  ++steps_;
  if (const auto fragment = schedule_.begins_after(steps_)) {
    begin(*fragment);
    pending_ = PendingAverage{.fragment = *fragment};
  }
  const auto ending = schedule_.ends_after(steps_);
  if (ending && pending_ && pending_->fragment == *ending) finish_pending();
}

void LocalSgd::begin(std::size_t fragment) {
  fragments_[fragment].started_after = steps_;
  for (const auto index : fragments_[fragment].bundles) {
    auto& bundle = bundles_[index];
    for (std::size_t k = 0; k < bundle.parameters.size(); ++k) {
      auto place = bundle.difference.view(k);
      torch::sub_out(place, bundle.outer.view(k), bundle.parameters[k].tensor);
      if (scale_ != 1) place.mul_(scale_);
    }
    averager_->start(index, lent_bucket(*group_, bundle.difference.numbers(), name()), 0);
    stats_.bytes += bundle.difference.bytes();
    ++stats_.operations;
  }
}

void LocalSgd::wait_for(const std::vector<std::size_t>& fragments) {
  const auto begin = clock_->now();
  for (const auto fragment : fragments) {
    for (const auto index : fragments_[fragment].bundles) averager_->wait(index);
  }
  averager_->end_step();
  stats_.exposed += clock_->now() - begin;
  ++stats_.synchronized;
}

void LocalSgd::step_outer(std::size_t fragment) {
  for (const auto index : fragments_[fragment].bundles) {
    auto& bundle = bundles_[index];
    optimizer_.step(bundle.outer.flat(),
                    bundle.velocity ? bundle.velocity->flat() : torch::Tensor(),
                    bundle.difference.flat());
  }
}

void LocalSgd::apply_outer(std::size_t fragment, double mixing) {
  for (const auto index : fragments_[fragment].bundles) {
    auto& bundle = bundles_[index];
    for (std::size_t k = 0; k < bundle.parameters.size(); ++k) {
      auto& own = bundle.parameters[k].tensor;
      if (mixing > 0) {
        own.lerp_(bundle.outer.view(k), 1 - mixing);
      } else {
        own.copy_(bundle.outer.view(k));
      }
    }
  }
}

void LocalSgd::finish_pending() {
  if (!pending_->arrived) wait_for({pending_->fragment});
  step_outer(pending_->fragment);
  apply_outer(pending_->fragment, mixing_);
  pending_.reset();
}

void LocalSgd::synchronize() {
  const torch::NoGradGuard no_grad;
  if (pending_) finish_pending();
  std::vector<std::size_t> changed;
  for (std::size_t fragment = 0; fragment < fragments_.size(); ++fragment) {
    if (fragments_[fragment].started_after < steps_) changed.push_back(fragment);
  }
  for (const auto fragment : changed) begin(fragment);
  if (!changed.empty()) wait_for(changed);
  for (const auto fragment : changed) step_outer(fragment);
  for (std::size_t fragment = 0; fragment < fragments_.size(); ++fragment) apply_outer(fragment, 0);
}

}  // namespace gradwire
