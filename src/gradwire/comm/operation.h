#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "gradwire/base/bytes.h"
#include "gradwire/base/error.h"
#include "gradwire/base/types.h"
#include "gradwire/comm/compiled_program.h"
#include "gradwire/comm/fingerprint.h"
#include "gradwire/schedule/layout.h"

namespace gradwire {

/// Names an operation on the wire between two ranks. The channel of a collective is its lane, and
/// those of a lane count up together; messages between two ranks count up in a channel of their own
/// per tag and direction.
struct OperationKey {
  /// Set in the channels of messages.
  static constexpr std::uint32_t kMessage = 0x80000000u;

  std::uint32_t channel = 0;
  std::uint64_t sequence = 0;

  bool is_message() const { return (channel & kMessage) != 0; }

  bool operator==(const OperationKey&) const = default;
};

/// Hears once how an operation ended. Called by whichever thread drives the executor; must be
/// short, and must not call the executor.
class Completion {
 public:
  virtual ~Completion() = default;
  /// A receive from whichever rank gets its data from this one. Comes before the others.
  virtual void resolved(Rank /*from*/) {}
  virtual void succeeded() = 0;
  virtual void failed(const Error& error) = 0;
};

/// An operation as it is handed to the executor. The memory is lent until `completion` is called.
struct OperationRequest {
  std::shared_ptr<const CompiledProgram> program;
  Fingerprint fingerprint;
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  int urgency = 0;
  Duration timeout = std::chrono::minutes(10);
  Time deadline = Time::max();  ///< Set by the executor: when it was posted, and the timeout.
  bool input_survives = false;  ///< Whether the caller's data is intact if the operation fails.
  std::shared_ptr<Completion> completion;
  int tag = -1;                          ///< Of a point-to-point message; -1 for collectives.
  int lane = 0;                          ///< Of a collective.
  int segments = 0;                      ///< Of each message, about; 0: kSegmentsPerMessage.
  std::shared_ptr<const Splits> splits;  ///< Of an all_to_all with unequal parts; else null.
  /// Of a receive from whichever rank, whose `program` is null until it is known from whom: makes
  /// it then.
  std::function<std::shared_ptr<const CompiledProgram>(Rank from)> program_from;
  /// Hears of each piece of each op that has passed. For drawings; usually empty.
  std::function<void(OpIndex)> on_progress;
};

/// An operation in flight: how far each op of the program has come, in bytes. Knows memory and
/// order, nothing of peers' streams.
class Operation {
 public:
  /// Binds the program to the request's memory. `scratch` has scratch_bytes() bytes.
  Operation(OperationKey key, OperationRequest request);

  /// Scratch that the request needs; hand it over before anything runs.
  std::size_t scratch_bytes() const { return slots_.back(); }
  void bind_scratch(std::byte* scratch);

  const OperationKey& key() const { return key_; }
  const OperationRequest& request() const { return request_; }
  const CompiledProgram& program() const { return *request_.program; }
  const Fingerprint& fingerprint() const { return request_.fingerprint; }

  /// Bytes of an op's message, and how many of them have passed so far.
  std::size_t size(OpIndex op) const { return states_[op].size; }
  std::size_t done(OpIndex op) const { return states_[op].done; }
  bool complete(OpIndex op) const { return states_[op].complete; }
  bool all_complete() const { return incomplete_ == 0; }

  std::byte* destination(OpIndex op) const { return states_[op].dst; }
  const std::byte* source(OpIndex op) const { return states_[op].src; }

  /// Bytes of a message that may be sent, counted from its beginning; `last` if that is all of it
  /// (which for an empty message is the only sign).
  struct Allowance {
    std::size_t bytes = 0;
    bool last = false;
  };
  Allowance allowance(OpIndex op) const;

  /// Says that the first `bytes` bytes of a send or receive have passed (`bytes == size(op)`
  /// completes it), runs the local ops that this allows, and appends to `sends` the send ops that
  /// may have become able to go on.
  void advance(OpIndex op, std::size_t bytes, std::vector<OpIndex>& sends);

  /// Runs what depends on nothing. Call once, before anything else.
  void start(std::vector<OpIndex>& sends);

  /// Whether messages to or from `peer` are still missing.
  bool needs(Rank peer) const;

  /// "all_reduce #5 of 1000 float32 (sum, ring)".
  std::string describe() const;

 private:
  struct OpState {
    std::byte* dst = nullptr;
    const std::byte* src = nullptr;
    std::size_t size = 0;
    std::size_t done = 0;
    bool complete = false;
  };

  void bind(OpIndex op, std::byte* scratch);
  void run_local(OpIndex op, std::vector<OpIndex>& sends);
  void compute(const Op& op, const OpState& state, std::size_t from, std::size_t to) const;
  void wake_behind(OpIndex op, std::vector<OpIndex>& sends);

  OperationKey key_;
  OperationRequest request_;
  std::vector<OpState> states_;
  std::size_t incomplete_ = 0;
  std::size_t element_size_ = 1;
  ChunkLayout layout_;
  std::vector<std::size_t> slots_;  ///< Where each scratch slot begins, and the end of them all.
};

}  // namespace gradwire
