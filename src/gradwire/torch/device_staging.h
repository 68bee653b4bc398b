#pragma once

#include <chrono>
#include <condition_variable>
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
#include "gradwire/torch/operations_in_flight.h"
#include "gradwire/torch/process_group.h"
#include "gradwire/torch/tensor_lists.h"

/// Operations on an accelerator's tensors, staged through pinned host memory. Uses only c10's
/// generic streams and events, so that it needs no device library.
namespace gradwire {

/// An independent part of an operation: views of tensors on one device. A tensor in both lists (the
/// same at::Tensor) has one host copy.
struct StagedPart {
  TensorList inputs;   ///< Copied to the host before.
  TensorList outputs;  ///< Copied back afterwards.
};

struct StagedOperation {
  c10d::OpType type = c10d::OpType::UNKNOWN;
  std::vector<StagedPart> parts;
  /// Starts one part on contiguous host tensors of the same sizes. Called on a separate thread, in
  /// the order of operations and of their parts. Must not block.
  std::function<c10::intrusive_ptr<c10d::Work>(TensorList& inputs, TensorList& outputs)> post;
  TensorList outputs;  ///< Results of Work::result() and the future.
  /// Called with an error of this rank's device or memory, which other ranks cannot detect; may be
  /// empty.
  std::function<void(const std::string& why)> on_local_failure;
  OperationsInFlight::Token in_flight_token;  ///< Released when the Work completes.
};

/// Views two tensors as matrices with the same number of columns, and cuts them into column
/// segments of about `segment_bytes`. All-gather (1 row, P rows), reduce-scatter (P, 1) and
/// all-reduce (the same tensor twice) can run by such segments. Either tensor may be undefined.
/// Returns a single part if the columns do not match; the operation then reports the error.
std::vector<StagedPart> cut(const at::Tensor& input, int input_rows, const at::Tensor& output,
                            int output_rows, std::size_t segment_bytes);

/// Cuts tensors of equal size into segments; groups of `rows` tensors are cut like the rows of one
/// matrix. Returns a single part if the sizes differ.
std::vector<StagedPart> cut_alike(const TensorList& inputs, const TensorList& outputs, int rows,
                                  std::size_t segment_bytes);

/// One staged operation. Stream-ordered like other device operations: it starts after the work
/// queued on the caller's current stream. wait() makes the current stream wait for the results; the
/// host blocks only for the network, which streams cannot wait for. Thread-safe.
class StagedWork final : public c10d::Work {
 public:
  /// `back` is the stream that copies results to the device.
  StagedWork(Rank rank, std::uint64_t number, StagedOperation operation, c10::Stream back,
             std::shared_ptr<CompletionThreads> threads);

  /// Source of a receive from any rank, after completion.
  int sourceRank() const override;
  TensorList result() override { return operation_.outputs; }
  /// Drives the network while it waits, then makes the current stream wait for the results.
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void synchronize() override;
  std::uint64_t getSequencenumber() const override { return number_; }
  /// Completes when the copies of the results are queued. Callbacks run on a separate thread, whose
  /// current streams wait for the copies.
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  /// Completes with a WorkResult, never with an error.
  c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override;

 private:
  friend class DeviceStaging;
  using Self = c10::intrusive_ptr<StagedWork>;

  struct HostPart {
    TensorList inputs;
    TensorList outputs;
    c10::Event arrived;  ///< The inputs are on the host.
    c10::intrusive_ptr<c10d::Work> work;
  };

  void copy_to_host(const c10::Stream& callers, const c10::Stream& stream);
  void copy_back(std::size_t part);
  void report_local_failure(const std::exception& error);
  c10::intrusive_ptr<c10d::Work> posted(std::size_t part);
  static void post(const Self& self, std::size_t part);
  static void part_done(const Self& self, std::size_t part, std::exception_ptr error);
  static void complete(const Self& self);
  void mark(c10::ivalue::Future& future);

  StagedOperation operation_;
  const c10::Stream back_;
  const std::uint64_t number_;
  std::shared_ptr<CompletionThreads> threads_;
  std::vector<HostPart> host_;
  c10::Event ready_;   ///< Recorded on the caller's stream when the operation starts.
  c10::Event copied_;  ///< All results are on the device.

  std::mutex progress_;  ///< Guards the members below, HostPart::work, and `back_` while copying.
  std::condition_variable posted_;  ///< A part has been posted, or the operation has failed.
  std::size_t parts_left_;
  std::exception_ptr error_;
  bool done_ = false;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

/// The side streams of each device, and the thread that posts parts once their copies have arrived.
/// Pipelined: while one part is sent, the next is copied to the host and the previous one back.
/// Pinned memory comes from PyTorch's cache and is bounded by the operations in flight.
/// Thread-safe.
class DeviceStaging {
 public:
  DeviceStaging();
  ~DeviceStaging() { close(); }

  /// Queues the copies on the calling thread. All tensors must be on one device. Throws the
  /// device's errors, and Exception(unsupported) during stream capture. Later errors are reported
  /// by the Work.
  c10::intrusive_ptr<StagedWork> run(Rank rank, std::uint64_t number, StagedOperation operation);

  /// Makes the current stream of each device wait for the results of completed operations.
  void synchronize();

  /// Returns when every part has been posted. Do not call run() afterwards.
  void finish_posting();

  /// Also waits for the callbacks of completed operations.
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
