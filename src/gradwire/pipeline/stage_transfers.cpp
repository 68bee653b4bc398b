#include "gradwire/pipeline/stage_transfers.h"

#include "gradwire/base/refuse.h"
#include "gradwire/base/tags.h"

namespace gradwire::pipeline {

int tag_of(const PipelineSchedule& schedule, const Message& message) {
  const auto stages = static_cast<std::int64_t>(schedule.stages());
  if (stages * stages * schedule.micro_batches >= kStageMessageTags) {
    refuse("{} stages and {} micro-batches have more messages than there are tags", stages,
           schedule.micro_batches);
  }
  const std::int64_t pair = message.from * stages + message.to;
  const std::int64_t place = pair * schedule.micro_batches + message.micro_batch;
  return static_cast<int>((schedule.trains ? kTrainingTag : kEvaluationTag) + place);
}

}  // namespace gradwire::pipeline
