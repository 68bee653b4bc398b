#pragma once

#include <memory>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "gradwire/comm/communicator.h"

namespace gradwire {

/// A Communicator as a c10d backend called "gradwire": nothing but translation. Operations are
/// asynchronous; tensors must be dense, contiguous and on the CPU, and are kept alive until the
/// operation completes. Whatever it is not given the memory for in the right shape is refused with
/// an Exception that names rank, operation and argument. Thread-safe as Communicator is.
class ProcessGroupGradwire final : public c10d::Backend {
 public:
  explicit ProcessGroupGradwire(std::shared_ptr<Communicator> communicator);

  const std::string getBackendName() const override { return "gradwire"; }
  const std::shared_ptr<Communicator>& communicator() const { return communicator_; }

  /// One tensor, from rank opts.rootRank.
  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors,
                                           const c10d::BroadcastOptions& opts) override;

  /// One tensor, in place. SUM, AVG, MIN, MAX and PRODUCT.
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions& opts) override;

  /// Any number of tensors, each in place.
  c10::intrusive_ptr<c10d::Work> allreduce_coalesced(
      std::vector<at::Tensor>& tensors, const c10d::AllreduceCoalescedOptions& opts) override;

  /// outputs[0][r] = input[0] of rank r, all of one shape.
  c10::intrusive_ptr<c10d::Work> allgather(std::vector<std::vector<at::Tensor>>& outputs,
                                           std::vector<at::Tensor>& inputs,
                                           const c10d::AllgatherOptions& opts) override;
  c10::intrusive_ptr<c10d::Work> _allgather_base(at::Tensor& output, at::Tensor& input,
                                                 const c10d::AllgatherOptions& opts) override;

  /// outputs[0] = the reduction over ranks of inputs[0][this rank].
  c10::intrusive_ptr<c10d::Work> reduce_scatter(std::vector<at::Tensor>& outputs,
                                                std::vector<std::vector<at::Tensor>>& inputs,
                                                const c10d::ReduceScatterOptions& opts) override;
  c10::intrusive_ptr<c10d::Work> _reduce_scatter_base(
      at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& opts) override;

  c10::intrusive_ptr<c10d::Work> barrier(const c10d::BarrierOptions& opts) override;

  /// Tags are 0 .. 2^30 - 1.
  c10::intrusive_ptr<c10d::Work> send(std::vector<at::Tensor>& tensors, int to, int tag) override;
  c10::intrusive_ptr<c10d::Work> recv(std::vector<at::Tensor>& tensors, int from, int tag) override;

  /// Fails whatever is in flight, here and on the peers.
  void abort() override;

 private:
  /// The one tensor of an argument that c10d spells as a list.
  const at::Tensor& only(const std::vector<at::Tensor>& tensors, const char* operation,
                         const char* argument) const;
  const std::vector<at::Tensor>& only(const std::vector<std::vector<at::Tensor>>& lists,
                                      const char* operation, const char* argument) const;
  c10::intrusive_ptr<c10d::Work> track(c10d::OpType type, std::vector<Work> parts,
                                       std::vector<at::Tensor> outputs,
                                       std::function<void()> finish = nullptr) const;

  std::shared_ptr<Communicator> communicator_;
};

/// The backend inside a c10d::ProcessGroup, which is what libtorch code takes. `store` (optional)
/// is what the group says its store is.
c10::intrusive_ptr<c10d::ProcessGroup> make_process_group(
    std::shared_ptr<Communicator> communicator, c10::intrusive_ptr<c10d::Store> store = nullptr);

/// The Communicator behind a group made by make_process_group; null for any other group.
std::shared_ptr<Communicator> communicator_of(c10d::ProcessGroup& group);

}  // namespace gradwire
