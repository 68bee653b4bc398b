#pragma once

#include <cstddef>
#include <cstdint>

#include "gradwire/engine/outbox.h"
#include "gradwire/schedule/cost/cost.h"

namespace gradwire {

/// Returns what the executor over TCP was measured to cost (schedule/cost/constants.h), with
/// segments as it cuts messages of `message_bytes`: segment_of(message_bytes, max_bytes, segments).
/// With 0 segment_bytes is 0 too, for models that cut each message by itself.
CostOptions executor_costs(double message_bytes = 0,
                           std::size_t max_bytes = OutboxLimits{}.segment_bytes, int segments = 0);

/// How an executor cuts messages into segments.
struct ExecutorSegments {
  std::size_t max_bytes = OutboxLimits{}.segment_bytes;
  int per_message = 0;  ///< 0: the default.
  /// Maximum number of segments of a message that are modeled: more take longer.
  std::uint32_t max_modeled = 1024;
};

/// Returns how long the executor takes for `bytes` bytes of all chunks together on `topology`, with
/// nothing else in flight: the one answer of the tuner and of the planner.
Estimate executor_estimate(const ScheduleCost& cost, const Topology& topology, std::size_t bytes,
                           const ExecutorSegments& segments = {});

}  // namespace gradwire
