#include "tests/train/mirror_group.h"

#include <stdexcept>

#include <torch/csrc/distributed/c10d/Backend.hpp>

namespace gradwire::test {
namespace {

class MirrorWork final : public c10d::Work {
 public:
  MirrorWork(std::shared_ptr<Mirror> mirror, int number)
      : mirror_(std::move(mirror)), number_(number) {}

  bool isCompleted() override { return !mirror_->held.contains(number_); }
  bool wait(std::chrono::milliseconds) override {
    if (isCompleted()) return true;
    throw std::runtime_error("waited for all-reduce " + std::to_string(number_));
  }

 private:
  std::shared_ptr<Mirror> mirror_;
  int number_;
};

class MirrorBackend final : public c10d::Backend {
 public:
  explicit MirrorBackend(std::shared_ptr<Mirror> mirror)
      : c10d::Backend(0, 2), mirror_(std::move(mirror)) {}

  const std::string getBackendName() const override { return "mirror"; }

  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions&) override {
    tensors[0].mul_(2);
    return c10::make_intrusive<MirrorWork>(mirror_, mirror_->launched++);
  }
  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>&,
                                           const c10d::BroadcastOptions&) override {
    return c10::make_intrusive<MirrorWork>(mirror_, -1);
  }
  c10::intrusive_ptr<c10d::Work> allgather(std::vector<std::vector<at::Tensor>>& outputs,
                                           std::vector<at::Tensor>& inputs,
                                           const c10d::AllgatherOptions&) override {
    for (auto& output : outputs[0]) output.copy_(inputs[0]);
    return c10::make_intrusive<MirrorWork>(mirror_, -1);
  }

 private:
  std::shared_ptr<Mirror> mirror_;
};

}  // namespace

ProcessGroup mirror_group(const std::shared_ptr<Mirror>& mirror) {
  const auto custom = c10d::ProcessGroup::BackendType::CUSTOM;
  auto group = c10::make_intrusive<c10d::ProcessGroup>(c10::intrusive_ptr<c10d::Store>(), 0, 2);
  group->setBackend(c10::DeviceType::CPU, custom, c10::make_intrusive<MirrorBackend>(mirror));
  group->setDefaultBackend(custom);
  return group;
}

}  // namespace gradwire::test
