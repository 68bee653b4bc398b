#include <algorithm>
#include <utility>

#include "gradwire/pipeline/generators/generators.h"

namespace gradwire::pipeline {
namespace {

/// The k-th forward, or backward, of a rank: groups of p micro-batches pass one chunk after the
/// other.
Task task_of(const PipelineOptions& options, Rank rank, int k, bool forward) {
  const int p = options.ranks;
  const int chunk = k / p % options.chunks;
  const int passed = forward ? chunk : options.chunks - 1 - chunk;
  return {forward ? Compute::forward : Compute::backward, rank + passed * p,
          k / (p * options.chunks) * p + k % p};
}

}  // namespace

PipelineSchedule interleaved(const PipelineOptions& options) {
  PipelineSchedule schedule = without_order(options, options.chunks);
  if (options.micro_batches % options.ranks != 0) {
    const int kept = 2 * (options.ranks - 1) + (options.chunks - 1) * options.ranks + 1;
    return order_greedily(std::move(schedule), options.costs, kept);
  }
  const int all = options.micro_batches * options.chunks;
  for (Rank rank = 0; rank < options.ranks; ++rank) {
    auto& order = schedule.order[static_cast<std::size_t>(rank)];
    const int ahead = (options.ranks - rank - 1) * 2 + (options.chunks - 1) * options.ranks;
    const int warm_up = std::min(ahead, all);
    for (int k = 0; k < warm_up; ++k) order.push_back(task_of(options, rank, k, true));
    for (int k = 0; k < all; ++k) {
      if (warm_up + k < all) order.push_back(task_of(options, rank, warm_up + k, true));
      order.push_back(task_of(options, rank, k, false));
    }
  }
  return schedule;
}

}  // namespace gradwire::pipeline
