#include "gradwire/pipeline/stage_transfers.h"

#include "gradwire/base/refuse.h"

namespace gradwire::pipeline {

int tag_of(const PipelineSchedule& schedule, const Message& message) {
  constexpr std::int64_t kTags = 1 << 28;
  constexpr std::int64_t kTraining = kTags * 2;
  constexpr std::int64_t kEvaluation = kTags * 3;
  const auto stages = static_cast<std::int64_t>(schedule.stages());
  if (stages * stages * schedule.micro_batches > kTags) {
    refuse("{} stages and {} micro-batches have more messages than there are tags", stages,
           schedule.micro_batches);
  }
  const std::int64_t pair = message.from * stages + message.to;
  const std::int64_t place = pair * schedule.micro_batches + message.micro_batch;
  return static_cast<int>((schedule.trains ? kTraining : kEvaluation) + place);
}

}  // namespace gradwire::pipeline
