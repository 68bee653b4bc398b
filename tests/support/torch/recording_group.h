#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "gradwire/host/group.h"

namespace gradwire::test {

/// A call of a c10d backend.
struct RecordedCall {
  std::string name;           ///< The function of c10d::Backend: "allreduce", "_allgather_base".
  std::string op;             ///< "avg", "sum", ...; empty: it does not reduce.
  std::int64_t elements = 0;  ///< Sum over its input tensors.
  int peer = -1;              ///< The root of a broadcast, the other rank of a message; else -1.
  int tag = 0;
  c10::DeviceType device = c10::DeviceType::CPU;
  c10::StreamId stream = -1;          ///< The caller's current stream; -1 on the CPU.
  std::vector<c10::StreamId> waited;  ///< The current stream in each wait().

  /// Returns true for calls that c10d requires to match.
  bool matches(const RecordedCall& other) const {
    return name == other.name && op == other.op && elements == other.elements &&
           device == other.device;
  }
};

void PrintTo(const RecordedCall& call, std::ostream* out);

/// One rank's calls, in their order. Thread-safe.
class Recording {
 public:
  std::vector<RecordedCall> calls() const;

  std::size_t add(RecordedCall call);
  void waits(std::size_t call, c10::StreamId stream);

 private:
  mutable std::mutex mutex_;
  std::vector<RecordedCall> calls_;
};

/// Names of its backends, as getBackendName() returns them; empty: it has none for such tensors.
struct RecordedNames {
  std::string host, device;
};

/// A group whose backends record each call, and perform it by a call of `inner`. It is no group of
/// gradwire's, even if `inner` is one: what trains over it trains as over Gloo ("gloo" on the host)
/// or NCCL ("nccl" on the device). Its ranks are those of `inner`, and so is its memory of streams:
/// over a group of gradwire's, operations on the queue device are in stream order, as NCCL's are.
ProcessGroup recording_group(const ProcessGroup& inner, const RecordedNames& names,
                             std::shared_ptr<Recording> recording);

}  // namespace gradwire::test
