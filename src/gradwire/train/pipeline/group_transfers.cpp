#include "gradwire/train/pipeline/group_transfers.h"

#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "gradwire/base/error.h"
#include "gradwire/pipeline/communicator_transfers.h"
#include "gradwire/torch/process_group.h"
#include "gradwire/torch/tensor_span.h"
#include "gradwire/train/wait_meter.h"

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

/// Measures how long the runner waits.
class MeasuredTransfer final : public pipeline::Transfer {
 public:
  MeasuredTransfer(std::unique_ptr<pipeline::Transfer> transfer, std::string name)
      : transfer_(std::move(transfer)), name_(std::move(name)) {}
  bool done() override { return transfer_->done(); }
  void wait() override {
    if (transfer_->done()) return transfer_->wait();
    const MeasuredWait measured(name_);
    transfer_->wait();
  }

 private:
  std::unique_ptr<pipeline::Transfer> transfer_;
  std::string name_;
};

class MeasuredTransfers final : public pipeline::StageTransfers {
 public:
  explicit MeasuredTransfers(std::unique_ptr<pipeline::StageTransfers> transfers)
      : transfers_(std::move(transfers)) {}

  std::unique_ptr<pipeline::Transfer> send(const Message& message, Rank to,
                                           LentConstSpan data) override {
    return std::make_unique<MeasuredTransfer>(transfers_->send(message, to, std::move(data)),
                                              fmt::format("send to stage {}", message.to));
  }
  std::unique_ptr<pipeline::Transfer> receive(const Message& message, Rank from,
                                              LentSpan data) override {
    return std::make_unique<MeasuredTransfer>(
        transfers_->receive(message, from, std::move(data)),
        fmt::format("wait for {} of stage {}", message.is_gradient() ? "gradient" : "activation",
                    message.from));
  }
  void barrier() override {
    const MeasuredWait measured("wait for barrier");
    transfers_->barrier();
  }

 private:
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
