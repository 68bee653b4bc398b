#include "gradwire/train/pipeline/group_transfers.h"

#include <utility>
#include <vector>

#include "gradwire/base/error.h"
#include "gradwire/torch/process_group.h"
#include "gradwire/torch/tensor_span.h"

namespace gradwire {
namespace {

using pipeline::Message;

/// Makes errors of other backends ours, so that the runner adds what this rank waited for.
template <class Action>
auto with_our_errors(const Action& action) {
  try {
    return action();
  } catch (const Exception&) {
    throw;
  } catch (const c10::Error& error) {
    throw Exception(ErrorKind::disconnected, error.what_without_backtrace());
  } catch (const std::exception& error) {
    throw Exception(ErrorKind::disconnected, error.what());
  }
}

class GroupTransfer final : public pipeline::Transfer {
 public:
  explicit GroupTransfer(c10::intrusive_ptr<c10d::Work> work) : work_(std::move(work)) {}
  bool done() override { return work_->isCompleted(); }
  void wait() override {
    with_our_errors([&] { work_->wait(); });
  }

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
    return start([&] { return group_->send(tensors, to, pipeline::tag_of(schedule_, message)); });
  }
  std::unique_ptr<pipeline::Transfer> receive(const Message& message, Rank from,
                                              LentSpan data) override {
    std::vector<torch::Tensor> tensors{tensor_over(data, torch::kCPU)};
    return start([&] { return group_->recv(tensors, from, pipeline::tag_of(schedule_, message)); });
  }
  void barrier() override {
    with_our_errors([&] { group_->barrier()->wait(); });
  }

 private:
  template <class Action>
  static std::unique_ptr<pipeline::Transfer> start(const Action& action) {
    return std::make_unique<GroupTransfer>(with_our_errors(action));
  }

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
