#include "gradwire/pipeline/communicator_transfers.h"

#include <utility>

namespace gradwire::pipeline {
namespace {

class CommunicatorTransfers final : public StageTransfers {
 public:
  CommunicatorTransfers(std::shared_ptr<Communicator> communicator,
                        const PipelineSchedule& schedule, bool prioritizes)
      : communicator_(std::move(communicator)), schedule_(schedule), prioritizes_(prioritizes) {}

  Work send(const Message& message, Rank to, LentConstSpan data) override {
    return communicator_->send(std::move(data), to, tag_of(schedule_, message),
                               options_of(message));
  }
  Work receive(const Message& message, Rank from, LentSpan data) override {
    return communicator_->recv(std::move(data), from, tag_of(schedule_, message),
                               options_of(message));
  }
  void barrier() override { communicator_->barrier().wait(); }

 private:
  OperationOptions options_of(const Message& message) const {
    return {.priority = prioritizes_ ? priority_of(message) : 0};
  }

  std::shared_ptr<Communicator> communicator_;
  const PipelineSchedule& schedule_;
  bool prioritizes_;
};

}  // namespace

std::unique_ptr<StageTransfers> communicator_transfers(std::shared_ptr<Communicator> communicator,
                                                       const PipelineSchedule& schedule,
                                                       bool prioritizes) {
  return std::make_unique<CommunicatorTransfers>(std::move(communicator), schedule, prioritizes);
}

}  // namespace gradwire::pipeline
