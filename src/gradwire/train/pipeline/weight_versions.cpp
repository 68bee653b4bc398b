#include "gradwire/train/pipeline/weight_versions.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "gradwire/base/refuse.h"
#include "gradwire/host/named_tensor.h"
#include "gradwire/train/pipeline/weight_prediction.h"

namespace gradwire {
namespace {

using pipeline::Compute;

/// Keeps a version until the last backward of a micro-batch that used it in its forward.
class VersionedWeights : public StageWeights {
 public:
  explicit VersionedWeights(Tensors parameters)
      : StageWeights(std::move(parameters)), newest_(std::make_shared<Tensors>(data())) {
    all_.push_back(newest_);
  }

  void begin(const pipeline::Task& task, std::int64_t step) override {
    const std::pair key(step, task.micro_batch);
    if (task.compute == Compute::forward) in_use_[key] = version_for(step);
    point_at(*in_use_.at(key));
  }

  void end(const pipeline::Task& task, std::int64_t step) override {
    if (completes_gradients(task)) in_use_.erase({step, task.micro_batch});
    point_at(*newest_);
  }

  /// The optimizer writes to a copy, unless nothing uses the newest version.
  void begin_update() override {
    if (newest_.use_count() > 1) {
      std::erase_if(all_, [](const auto& version) { return version.expired(); });
      newest_ = std::make_shared<Tensors>(copy_of(*newest_));
      all_.push_back(newest_);
      point_at(*newest_);
      count_copies();
    }
    StageWeights::begin_update();
  }

  int copies() const override {
    return static_cast<int>(
        std::ranges::count_if(all_, [](const auto& version) { return !version.expired(); }));
  }

 protected:
  using Version = std::shared_ptr<Tensors>;

  virtual Version version_for(std::int64_t /*step*/) { return newest_; }
  const Version& newest() const { return newest_; }

 private:
  Version newest_;
  std::map<std::pair<std::int64_t, pipeline::MicroBatch>, Version> in_use_;
  std::vector<std::weak_ptr<Tensors>> all_;
};

/// Also keeps the version before the newest, for the micro-batches of a step.
class DoubleBufferedWeights final : public VersionedWeights {
 public:
  using VersionedWeights::VersionedWeights;

  void begin_update() override {
    before_ = newest();
    VersionedWeights::begin_update();
  }
  void end_update() override {
    VersionedWeights::end_update();
    ++updates_;
  }
  void drained() override {
    before_.reset();
    first_.reset();
    updates_ = 0;
  }

 private:
  /// Version k - 1 in step k, counted from the first step since the pipeline was empty.
  Version version_for(std::int64_t step) override {
    const std::int64_t since = step - *(first_ = first_.value_or(step));
    return since > 0 && updates_ == since ? before_ : newest();
  }

  Version before_;
  std::optional<std::int64_t> first_;
  std::int64_t updates_ = 0;  ///< Since the pipeline was empty.
};

}  // namespace

StageWeights::StageWeights(std::vector<torch::Tensor> parameters)
    : parameters_(std::move(parameters)) {}

void StageWeights::begin_update() {
  counters_.clear();
  for (const torch::Tensor& parameter : parameters_) {
    counters_.push_back(parameter.unsafeGetTensorImpl()->version_counter().current_version());
  }
}

void StageWeights::end_update() {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    c10::VariableVersion shared = parameters_[i].unsafeGetTensorImpl()->version_counter();
    shared.set_version(counters_[i]);
  }
}

StageWeights::Tensors StageWeights::data() const {
  Tensors all;
  for (const torch::Tensor& parameter : parameters_) all.push_back(parameter.variable_data());
  return all;
}

void StageWeights::point_at(const Tensors& data) {
  for (std::size_t i = 0; i < parameters_.size(); ++i) parameters_[i].set_data(data[i]);
}

StageWeights::Tensors StageWeights::copy_of(const Tensors& data) {
  Tensors all;
  for (const torch::Tensor& tensor : data) all.push_back(tensor.clone());
  return all;
}

void StageWeights::count_copies() {
  max_copies_ = std::max(max_copies_, copies());
}

std::unique_ptr<StageWeights> make_stage_weights(WeightMethod method, const StagePlace& place,
                                                 const torch::nn::Module& module,
                                                 torch::optim::Optimizer* optimizer) {
  if (method == WeightMethod::flush || !optimizer) return nullptr;
  std::vector<torch::Tensor> parameters;
  for (const auto& [name, tensor] : trainable_parameters(module)) parameters.push_back(tensor);
  switch (rule_of(method)) {
    case pipeline::WeightRule::stash:
      return std::make_unique<VersionedWeights>(std::move(parameters));
    case pipeline::WeightRule::double_buffer:
      return std::make_unique<DoubleBufferedWeights>(std::move(parameters));
    default:
      return make_single_version(method, place, std::move(parameters), *optimizer);
  }
}

}  // namespace gradwire
