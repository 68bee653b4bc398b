#include "gradwire/train/data_parallel.h"

#include <algorithm>

#include <fmt/format.h>

#include "gradwire/base/error.h"
#include "gradwire/train/model_check.h"

namespace gradwire {
namespace {

std::vector<NamedTensor> concatenated(std::vector<NamedTensor> first,
                                      const std::vector<NamedTensor>& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

void check_options(const DataParallelOptions& options) {
  if (!options.process_group) {
    throw Exception(ErrorKind::invalid_argument,
                    "DataParallel: no process_group; pass {.process_group = gradwire::init()}");
  }
  if (!(options.bucket_cap_mb > 0)) {
    throw Exception(ErrorKind::invalid_argument,
                    fmt::format("DataParallel: bucket_cap_mb is {}; it must be positive",
                                options.bucket_cap_mb));
  }
}

ReducerOptions reducer_options(const DataParallelOptions& options) {
  const auto cap = static_cast<std::size_t>(options.bucket_cap_mb * (1 << 20));
  const BucketLimits limits;
  return {.buckets = {.first_bytes = std::min(limits.first_bytes, cap), .bytes = cap},
          .find_unused = options.find_unused_parameters,
          .clock = options.clock};
}

}  // namespace

DataParallelCore::DataParallelCore(torch::nn::Module& module, const DataParallelOptions& options)
    : group_(options.process_group),
      buffers_(all_buffers(module)),
      broadcast_buffers_(options.broadcast_buffers),
      find_unused_(options.find_unused_parameters),
      clock_(options.clock) {
  check_options(options);
  if (size() == 1) return;
  const auto state = concatenated(all_parameters(module), buffers_);
  check_same_model(*group_, state);
  broadcast_tensors(*group_, state);
  reducer_ = std::make_unique<GradientReducer>(group_, trainable_parameters(module),
                                               reducer_options(options));
}

void DataParallelCore::before_forward(const torch::nn::Module& module) {
  if (!reducer_ || !broadcast_buffers_ || !synchronise_) return;
  if (module.is_training() && torch::GradMode::is_enabled()) synchronise_buffers();
}

void DataParallelCore::after_forward(const std::vector<torch::Tensor>& outputs) {
  if (reducer_ && torch::GradMode::is_enabled()) reducer_->prepare(outputs, synchronise_);
}

void DataParallelCore::synchronise_buffers() {
  if (!reducer_ || buffers_.empty()) return;
  const auto begin = clock_->now();
  broadcast_tensors(*group_, buffers_);
  buffer_time_ += clock_->now() - begin;
}

ReducerStats DataParallelCore::stats() const {
  if (!reducer_) return {};
  auto stats = reducer_->stats();
  stats.exposed += buffer_time_;
  return stats;
}

}  // namespace gradwire
