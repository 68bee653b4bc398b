#pragma once

#include <cstdint>

#include "gradwire/base/lent_span.h"
#include "gradwire/base/priorities.h"
#include "gradwire/base/types.h"
#include "gradwire/base/work.h"
#include "gradwire/pipeline/pipeline_schedule.h"

namespace gradwire::pipeline {

/// Carries messages between the ranks of a pipeline. Both ends start the transfers of one message
/// in the order of their steps; messages with other stages or micro-batches are independent.
/// Starting a transfer does not block on the network. Used by one thread. All throw Exception.
class StageTransfers {
 public:
  virtual ~StageTransfers() = default;

  virtual Work send(const Message& message, Rank to, LentConstSpan data) = 0;
  virtual Work receive(const Message& message, Rank from, LentSpan data) = 0;
  /// Returns when all ranks of the pipeline have called it.
  virtual void barrier() = 0;
};

inline int priority_of(const Message& message) {
  return message.is_gradient() ? kGradientPriority : kActivationPriority;
}

/// Returns the tag of a message between two ranks; evaluation and training use different ones.
/// Throws Exception(invalid_argument) if the schedule has more messages than tags.
int tag_of(const PipelineSchedule& schedule, const Message& message);

}  // namespace gradwire::pipeline
