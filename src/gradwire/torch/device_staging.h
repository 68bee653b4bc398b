#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include <c10/core/Event.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "gradwire/base/types.h"
#include "gradwire/torch/completion_threads.h"
#include "gradwire/torch/tensor_lists.h"
#include "gradwire/torch/under_way.h"

/// Operations on an accelerator's tensors by way of pinned host memory. Written against c10's
/// streams and events of any device, so that it needs no device's own library.
namespace gradwire {

/// A piece of an operation that can be done by itself: views of tensors of one device. A tensor in
/// both lists (the same at::Tensor) is one in host memory too.
struct StagedPart {
  TensorList inputs;   ///< Copied to the host before.
  TensorList outputs;  ///< Copied back afterwards.
};

struct StagedOperation {
  c10d::OpType type = c10d::OpType::UNKNOWN;
  std::vector<StagedPart> parts;
  /// Starts one part on contiguous host tensors of the same sizes. Called for one part after the
  /// other, for one operation after the other, on a thread of its own; must not wait.
  std::function<c10::intrusive_ptr<c10d::Work>(TensorList& inputs, TensorList& outputs)> post;
  TensorList outputs;  ///< What Work::result() and the future give.
  /// Told of an error of this rank's device or memory, which the others cannot know of; may be
  /// empty.
  std::function<void(const std::string& why)> failed_here;
  UnderWay::Token until_over;  ///< Let go of when the Work is complete.
};

/// Two tensors as matrices of as many columns, cut into segments of columns of about
/// `segment_bytes`: what an all-gather (1 row, P rows), a reduce-scatter (P, 1) or an all-reduce
/// (twice the same tensor) can be done in. Either may be undefined. In one part where the columns
/// do not match, which the operation itself then refuses.
std::vector<StagedPart> cut(const at::Tensor& input, int input_rows, const at::Tensor& output,
                            int output_rows, std::size_t segment_bytes);

/// Tensors of as many elements each, of which `rows` that belong together are cut as if they were
/// the rows of one matrix. In one part where their numbers of elements differ.
std::vector<StagedPart> cut_alike(const TensorList& inputs, const TensorList& outputs, int rows,
                                  std::size_t segment_bytes);

/// One such operation under way. Like other operations on a device, it happens in the order of
/// streams: it begins when what the caller's current stream had to do is done, and after wait() the
/// current stream goes on when the results are there. The host waits for the network alone, as what
/// arrives when is not known to a stream. Thread-safe.
class StagedWork final : public c10d::Work {
 public:
  /// `back` is the stream that copies results to the device.
  StagedWork(Rank rank, std::uint64_t number, StagedOperation operation, c10::Stream back,
             std::shared_ptr<CompletionThreads> threads);

  /// Whose message a receive from any rank was, once complete.
  int sourceRank() const override;
  TensorList result() override { return operation_.outputs; }
  /// Makes the current stream wait for the results.
  void synchronize() override;
  std::uint64_t getSequencenumber() const override { return number_; }
  /// Completes as soon as the copies of the results are under way; callbacks run on a thread of
  /// their own, with streams current that wait for them.
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  /// Completes with a WorkResult, and never with an error.
  c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override;

 private:
  friend class DeviceStaging;
  using Self = c10::intrusive_ptr<StagedWork>;

  struct HostPart {
    TensorList inputs;
    TensorList outputs;
    c10::Event arrived;  ///< The inputs are here.
    c10::intrusive_ptr<c10d::Work> work;
  };

  void copy_to_host(const c10::Stream& callers, const c10::Stream& stream);
  void copy_back(std::size_t part);
  void fail_here(const std::exception& error);
  static void post(const Self& self, std::size_t part);
  static void part_done(const Self& self, std::size_t part, std::exception_ptr error);
  static void complete(const Self& self);
  void mark(c10::ivalue::Future& future);

  StagedOperation operation_;
  const c10::Stream back_;
  const std::uint64_t number_;
  std::shared_ptr<CompletionThreads> threads_;
  std::vector<HostPart> host_;
  c10::Event ready_;   ///< What the caller's stream had to do when the operation began is done.
  c10::Event copied_;  ///< All results are on the device.

  std::mutex progress_;  ///< Guards what follows, and `back_` while copies are queued.
  std::size_t parts_left_;
  std::exception_ptr error_;
  bool done_ = false;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

/// The side streams of each device, and the thread that hands parts to the network when their
/// copies have arrived. While one part is sent, the next is copied to the host and the one before
/// it back. Pinned memory comes from PyTorch's own cache, as much as is under way. Thread-safe.
class DeviceStaging {
 public:
  DeviceStaging();
  ~DeviceStaging() { close(); }

  /// Queues the copies on the calling thread. All tensors are on one device. Throws what the device
  /// throws, Exception(unsupported) while its stream is captured; later errors are the Work's.
  c10::intrusive_ptr<StagedWork> run(Rank rank, std::uint64_t number, StagedOperation operation);

  /// Makes the current stream of each device wait for the results of what is complete.
  void synchronize();

  /// Returns when everything has been handed over. Nothing may be run afterwards.
  void finish_posting();

  /// The same, and all callbacks of what is complete have run.
  void close();

 private:
  struct Streams {
    c10::Stream to_host;
    c10::Stream to_device;
  };
  Streams streams_of(at::Device device);

  std::mutex mutex_;
  std::map<c10::DeviceIndex, Streams> streams_;
  CompletionThreads poster_{1};
  std::shared_ptr<CompletionThreads> callbacks_;
};

}  // namespace gradwire
