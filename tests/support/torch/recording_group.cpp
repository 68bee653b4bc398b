#include "tests/support/torch/recording_group.h"

#include <ostream>

#include <ATen/DeviceAccelerator.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "gradwire/torch/releases.h"

namespace gradwire::test {
namespace {

using Tensors = std::vector<at::Tensor>;
using TensorLists = std::vector<Tensors>;
using WorkPointer = c10::intrusive_ptr<c10d::Work>;

c10::StreamId stream_of_caller(c10::DeviceType device) {
  if (device == c10::DeviceType::CPU) return -1;
  const c10::impl::VirtualGuardImpl guard(device);
  return guard.getStream(guard.getDevice()).id();
}

std::string recorded_op(const c10d::ReduceOp& op) {
  switch (op.op_) {
    case c10d::ReduceOp::SUM:
      return "sum";
    case c10d::ReduceOp::AVG:
      return "avg";
    case c10d::ReduceOp::MAX:
      return "max";
    default:
      return "another";
  }
}

std::int64_t recorded_elements(const Tensors& tensors) {
  std::int64_t elements = 0;
  for (const auto& tensor : tensors) elements += tensor.numel();
  return elements;
}

class RecordedWork final : public c10d::Work {
 public:
  RecordedWork(WorkPointer work, std::shared_ptr<Recording> recording, std::size_t call,
               c10::DeviceType device)
      : work_(std::move(work)), recording_(std::move(recording)), call_(call), device_(device) {}

  bool isCompleted() override { return work_->isCompleted(); }
  bool isSuccess() const override { return work_->isSuccess(); }
  bool wait(std::chrono::milliseconds timeout) override {
    recording_->waits(call_, stream_of_caller(device_));
    return work_->wait(timeout);
  }
  std::vector<at::Tensor> result() override { return work_->result(); }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return work_->getFuture(); }

 private:
  WorkPointer work_;
  std::shared_ptr<Recording> recording_;
  std::size_t call_;
  c10::DeviceType device_;
};

class RecordingBackend final : public c10d::Backend {
 public:
  RecordingBackend(ProcessGroup inner, std::string name, c10::DeviceType device,
                   std::shared_ptr<Recording> recording)
      : c10d::Backend(inner->getRank(), inner->getSize()),
        inner_(std::move(inner)),
        name_(std::move(name)),
        device_(device),
        recording_(std::move(recording)) {}

  const std::string getBackendName() const override { return name_; }
  void abort() override { inner_->abort(); }

  WorkPointer allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    return recorded({.name = "allreduce", .op = recorded_op(options.reduceOp)}, tensors,
                    [&] { return inner_->allreduce(tensors, options); });
  }
  WorkPointer reduce(Tensors& tensors, const c10d::ReduceOptions& options) override {
    return recorded({.name = "reduce",
                     .op = recorded_op(options.reduceOp),
                     .peer = static_cast<int>(options.rootRank)},
                    tensors, [&] { return inner_->reduce(tensors, options); });
  }
  WorkPointer _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                   const c10d::ReduceScatterOptions& options) override {
    return recorded({.name = "_reduce_scatter_base", .op = recorded_op(options.reduceOp)}, {input},
                    [&] { return reduce_scatter_single(*inner_, output, input, options); });
  }
  WorkPointer broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    return recorded({.name = "broadcast", .peer = static_cast<int>(options.rootRank)}, tensors,
                    [&] { return inner_->broadcast(tensors, options); });
  }
  WorkPointer allgather(TensorLists& outputs, Tensors& inputs,
                        const c10d::AllgatherOptions& options) override {
    return recorded({.name = "allgather"}, inputs,
                    [&] { return inner_->allgather(outputs, inputs, options); });
  }
  WorkPointer _allgather_base(at::Tensor& output, at::Tensor& input,
                              const c10d::AllgatherOptions& /*options*/) override {
    return recorded({.name = "_allgather_base"}, {input},
                    [&] { return all_gather_single(*inner_, output, input); });
  }
  WorkPointer alltoall_base(at::Tensor& output, at::Tensor& input,
                            std::vector<std::int64_t>& received, std::vector<std::int64_t>& sent,
                            const c10d::AllToAllOptions& /*options*/) override {
    return recorded({.name = "alltoall_base"}, {input},
                    [&] { return all_to_all_single(*inner_, output, input, received, sent); });
  }
  WorkPointer send(Tensors& tensors, int to, int tag) override {
    return recorded({.name = "send", .peer = to, .tag = tag}, tensors,
                    [&] { return inner_->send(tensors, to, tag); });
  }
  WorkPointer recv(Tensors& tensors, int from, int tag) override {
    return recorded({.name = "recv", .peer = from, .tag = tag}, tensors,
                    [&] { return inner_->recv(tensors, from, tag); });
  }
  WorkPointer barrier(const c10d::BarrierOptions& options) override {
    return recorded({.name = "barrier"}, {}, [&] { return inner_->barrier(options); });
  }

 private:
  template <class Operation>
  WorkPointer recorded(RecordedCall call, const Tensors& tensors, const Operation& operation) {
    call.elements = recorded_elements(tensors);
    call.device = device_;
    call.stream = stream_of_caller(device_);
    const std::size_t number = recording_->add(std::move(call));
    return c10::make_intrusive<RecordedWork>(operation(), recording_, number, device_);
  }

  ProcessGroup inner_;
  std::string name_;
  c10::DeviceType device_;
  std::shared_ptr<Recording> recording_;
};

}  // namespace

void PrintTo(const RecordedCall& call, std::ostream* out) {
  *out << call.name << ' ' << call.op << " of " << call.elements << " on " << call.device
       << ", peer " << call.peer << ", tag " << call.tag << ", stream " << call.stream << ", "
       << call.waited.size() << " waits";
}

std::vector<RecordedCall> Recording::calls() const {
  const std::lock_guard lock(mutex_);
  return calls_;
}

std::size_t Recording::add(RecordedCall call) {
  const std::lock_guard lock(mutex_);
  calls_.push_back(std::move(call));
  return calls_.size() - 1;
}

void Recording::waits(std::size_t call, c10::StreamId stream) {
  const std::lock_guard lock(mutex_);
  calls_.at(call).waited.push_back(stream);
}

ProcessGroup recording_group(const ProcessGroup& inner, const RecordedNames& names,
                             std::shared_ptr<Recording> recording) {
  using Type = c10d::ProcessGroup::BackendType;
  auto group = c10::make_intrusive<c10d::ProcessGroup>(inner->getStore(), inner->getRank(),
                                                       inner->getSize());
  // Each backend of a group has a type of its own.
  const auto add = [&](c10::DeviceType device, Type type, const std::string& name) {
    if (name.empty()) return;
    group->setBackend(device, type,
                      c10::make_intrusive<RecordingBackend>(inner, name, device, recording));
    group->setDefaultBackend(type);
  };
  add(c10::DeviceType::CPU, Type::GLOO, names.host);
  if (const auto accelerator = at::accelerator::getAccelerator())
    add(*accelerator, Type::NCCL, names.device);
  return group;
}

}  // namespace gradwire::test
