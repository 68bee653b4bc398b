#include "gradwire/pipeline/stage_transfers.h"

#include <utility>

#include "gradwire/base/refuse.h"

namespace gradwire::pipeline {
namespace {

class CommunicatorTransfer final : public Transfer {
 public:
  explicit CommunicatorTransfer(Work work) : work_(std::move(work)) {}
  bool done() override { return work_.done(); }
  void wait() override { work_.wait(); }

 private:
  Work work_;
};

class CommunicatorTransfers final : public StageTransfers {
 public:
  CommunicatorTransfers(std::shared_ptr<Communicator> communicator,
                        const PipelineSchedule& schedule)
      : communicator_(std::move(communicator)), schedule_(schedule) {}

  std::unique_ptr<Transfer> send(const Message& message, Rank to, LentConstSpan data) override {
    return std::make_unique<CommunicatorTransfer>(communicator_->send(
        std::move(data), to, tag_of(schedule_, message), {.priority = priority_of(message)}));
  }
  std::unique_ptr<Transfer> receive(const Message& message, Rank from, LentSpan data) override {
    return std::make_unique<CommunicatorTransfer>(communicator_->recv(
        std::move(data), from, tag_of(schedule_, message), {.priority = priority_of(message)}));
  }
  void barrier() override { communicator_->barrier().wait(); }

 private:
  std::shared_ptr<Communicator> communicator_;
  const PipelineSchedule& schedule_;
};

}  // namespace

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

std::unique_ptr<StageTransfers> communicator_transfers(std::shared_ptr<Communicator> communicator,
                                                       const PipelineSchedule& schedule) {
  return std::make_unique<CommunicatorTransfers>(std::move(communicator), schedule);
}

}  // namespace gradwire::pipeline
