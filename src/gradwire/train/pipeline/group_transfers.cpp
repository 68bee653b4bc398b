#include "gradwire/train/pipeline/group_transfers.h"

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "gradwire/host/wait_meter.h"
#include "gradwire/pipeline/communicator_transfers.h"
#include "gradwire/torch/c10d_work.h"
#include "gradwire/torch/process_group.h"
#include "gradwire/torch/tensor_span.h"

namespace gradwire {
namespace {

using pipeline::Message;

class GroupTransfers final : public pipeline::StageTransfers {
 public:
  GroupTransfers(ProcessGroup group, const pipeline::PipelineSchedule& schedule)
      : group_(std::move(group)), schedule_(schedule) {}

  Work send(const Message& message, Rank to, LentConstSpan data) override {
    std::vector<torch::Tensor> tensors{tensor_over(data, torch::kCPU)};
    return start([&] { return group_->send(tensors, to, pipeline::tag_of(schedule_, message)); });
  }
  Work receive(const Message& message, Rank from, LentSpan data) override {
    std::vector<torch::Tensor> tensors{tensor_over(data, torch::kCPU)};
    return start([&] { return group_->recv(tensors, from, pipeline::tag_of(schedule_, message)); });
  }
  void barrier() override {
    with_our_errors([&] { group_->barrier()->wait(); });
  }

 private:
  static Work start(const std::function<c10::intrusive_ptr<c10d::Work>()>& post) {
    c10::intrusive_ptr<c10d::Work> work;
    with_our_errors([&] { work = post(); });
    return work_of(std::move(work));
  }

  ProcessGroup group_;
  const pipeline::PipelineSchedule& schedule_;
};

/// Measures how long the runner waits.
class MeasuredTransfers final : public pipeline::StageTransfers {
 public:
  explicit MeasuredTransfers(std::unique_ptr<pipeline::StageTransfers> transfers)
      : transfers_(std::move(transfers)) {}

  Work send(const Message& message, Rank to, LentConstSpan data) override {
    return measured(transfers_->send(message, to, std::move(data)),
                    fmt::format("send to stage {}", message.to));
  }
  Work receive(const Message& message, Rank from, LentSpan data) override {
    return measured(transfers_->receive(message, from, std::move(data)),
                    fmt::format("wait for {} of stage {}",
                                message.is_gradient() ? "gradient" : "activation", message.from));
  }
  void barrier() override {
    const MeasuredWait measured("wait for barrier");
    transfers_->barrier();
  }

 private:
  static Work measured(Work work, std::string name) {
    return work_with_wait(std::move(work), [name = std::move(name)](const Work& in_flight) {
      const MeasuredWait measure(name);
      in_flight.wait();
    });
  }

  std::unique_ptr<pipeline::StageTransfers> transfers_;
};

std::unique_ptr<pipeline::StageTransfers> plain_transfers(
    ProcessGroup group, const pipeline::PipelineSchedule& schedule) {
  if (auto communicator = communicator_of(*group)) {
    return pipeline::communicator_transfers(std::move(communicator), schedule);
  }
  return std::make_unique<GroupTransfers>(std::move(group), schedule);
}

}  // namespace

std::unique_ptr<pipeline::StageTransfers> group_transfers(
    ProcessGroup group, const pipeline::PipelineSchedule& schedule) {
  return std::make_unique<MeasuredTransfers>(plain_transfers(std::move(group), schedule));
}

}  // namespace gradwire
