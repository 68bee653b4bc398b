#include "gradwire/train/data_parallel/bucket_steps.h"

#include <algorithm>

#include "gradwire/train/memory/memory_tracker.h"

namespace gradwire {
namespace {

/// Indices of the parameters in each bucket.
std::vector<std::vector<std::size_t>> groups_of(const GradientReducer* reducer, std::size_t count) {
  if (reducer != nullptr) return reducer->layout().members;
  if (count == 0) return {};
  std::vector<std::vector<std::size_t>> groups(1);
  for (std::size_t i = 0; i < count; ++i) groups[0].push_back(i);
  return groups;
}

}  // namespace

BucketSteps::BucketSteps(GradientReducer* reducer, const std::vector<NamedTensor>& parameters,
                         const OptimizerFactory& factory, TraceRecorder* trace)
    : reducer_(reducer), trace_(trace) {
  const auto groups = groups_of(reducer, parameters.size());
  for (std::size_t bucket = 0; bucket < groups.size(); ++bucket) {
    std::vector<torch::Tensor> tensors;
    for (const auto index : groups[bucket]) {
      tensors.push_back(parameters[index].tensor);
      bucket_of_[tensors.back().unsafeGetTensorImpl()] = bucket;
    }
    if (factory) optimizers_.push_back(factory(std::move(tensors)));
  }
  done_.assign(groups.size(), true);
}

void BucketSteps::begin(BeforeStep before) {
  if (stepping_) finish();  // A pending step, if no forward completed it.
  before_ = std::move(before);
  stepping_ = !optimizers_.empty();
  done_.assign(optimizers_.size(), false);
  remaining_ = optimizers_.size();
  if (reducer_ == nullptr || !reducer_->in_flight()) finish();
}

bool BucketSteps::pending(const torch::Tensor& parameter) const {
  const auto found = bucket_of_.find(parameter.unsafeGetTensorImpl());
  return stepping_ && found != bucket_of_.end() && !done_[found->second];
}

void BucketSteps::await(const torch::nn::Module& module) {
  if (!pending()) return;
  for (const auto& parameter : module.parameters()) {
    const auto found = bucket_of_.find(parameter.unsafeGetTensorImpl());
    if (found != bucket_of_.end()) await(found->second);
  }
}

void BucketSteps::finish() {
  // The bucket with the lowest priority arrives last; await() steps the others meanwhile.
  for (std::size_t bucket = done_.size(); bucket-- > 0 && pending();) await(bucket);
}

void BucketSteps::await(std::size_t bucket) {
  if (stepping_ && done_[bucket]) return;
  while (reducer_ != nullptr && !reducer_->arrived(bucket) && complete_any_arrived()) {
  }
  complete(bucket);
}

bool BucketSteps::complete_any_arrived() {
  if (!stepping_) return false;
  for (std::size_t bucket = done_.size(); bucket-- > 0;) {
    if (done_[bucket] || !reducer_->arrived(bucket)) continue;
    complete(bucket);
    return true;
  }
  return false;
}

void BucketSteps::complete(std::size_t bucket) {
  if (reducer_ != nullptr) reducer_->settle(bucket);
  if (!stepping_ || done_[bucket]) return;
  const TraceScope scope(trace_, TraceKind::optimizer);
  done_[bucket] = true;
  auto& optimizer = *optimizers_[bucket];
  const KeptMemoryScope memory(MemoryCategory::optimizer);
  if (before_) before_(optimizer);
  optimizer.step();
  optimizer.zero_grad();
  if (--remaining_ == 0) stepping_ = false;
}

}  // namespace gradwire
