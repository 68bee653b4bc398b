#include "gradwire/train/pipeline/group_transfers.h"

#include <utility>
#include <vector>

#include "gradwire/torch/process_group.h"
#include "gradwire/torch/tensor_span.h"

namespace gradwire {
namespace {

using pipeline::Message;

class GroupTransfer final : public pipeline::Transfer {
 public:
  explicit GroupTransfer(c10::intrusive_ptr<c10d::Work> work) : work_(std::move(work)) {}
  bool done() override { return work_->isCompleted(); }
  void wait() override { work_->wait(); }

 private:
  c10::intrusive_ptr<c10d::Work> work_;
};

class GroupTransfers final : public pipeline::StageTransfers {
 public:
  GroupTransfers(ProcessGroup group, const pipeline::PipelineSchedule& schedule)
      : group_(std::move(group)), schedule_(schedule) {}

  std::unique_ptr<pipeline::Transfer> send(const Message& message, Rank to,
                                           LentConstSpan data) override {
    std::vector<torch::Tensor> tensors{tensor_over(data, torch::kCPU)};
    return std::make_unique<GroupTransfer>(
        group_->send(tensors, to, pipeline::tag_of(schedule_, message)));
  }
  std::unique_ptr<pipeline::Transfer> receive(const Message& message, Rank from,
                                              LentSpan data) override {
    std::vector<torch::Tensor> tensors{tensor_over(data, torch::kCPU)};
    return std::make_unique<GroupTransfer>(
        group_->recv(tensors, from, pipeline::tag_of(schedule_, message)));
  }
  void barrier() override { group_->barrier()->wait(); }

 private:
  ProcessGroup group_;
  const pipeline::PipelineSchedule& schedule_;
};

}  // namespace

std::unique_ptr<pipeline::StageTransfers> group_transfers(
    ProcessGroup group, const pipeline::PipelineSchedule& schedule) {
  if (auto communicator = communicator_of(*group)) {
    return pipeline::communicator_transfers(std::move(communicator), schedule);
  }
  return std::make_unique<GroupTransfers>(std::move(group), schedule);
}

}  // namespace gradwire
