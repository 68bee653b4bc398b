#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "gradwire/base/bytes.h"
#include "gradwire/base/error.h"
#include "gradwire/base/types.h"
#include "gradwire/engine/operations/compiled_program.h"
#include "gradwire/engine/operations/fingerprint.h"
#include "gradwire/schedule/layout.h"

namespace gradwire::engine {

/// Identifies an operation on the wire between two ranks. Each group of ranks that share a
/// communicator's engine has channels of its own. The channel of a collective is its lane, and the
/// collectives of a lane are numbered together. Messages between two ranks have one channel per tag
/// and direction.
struct OperationKey {
  /// Set in the channel numbers of messages.
  static constexpr std::uint32_t kMessage = 0x80000000u;

  std::uint32_t channel = 0;
  std::uint64_t sequence = 0;
  std::uint16_t group = 0;

  bool is_message() const { return (channel & kMessage) != 0; }

  bool operator==(const OperationKey&) const = default;
};

/// Receives the result of an operation, once. Called by the thread that drives the executor; must
/// be short and must not call the executor.
class Completion {
 public:
  virtual ~Completion() = default;
  /// A receive from any rank is matched to rank `from` of its group. Called before succeeded() or
  /// failed().
  virtual void resolved(Rank /*from*/) {}
  virtual void succeeded() = 0;
  virtual void failed(const Error& error) = 0;
};

/// An operation as passed to an engine. Its memory is lent until `completion` is called.
struct OperationRequest {
  std::shared_ptr<const CompiledProgram> program;
  Fingerprint fingerprint;
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  int priority = 0;
  Duration timeout = std::chrono::minutes(10);
  Time deadline = Time::max();  ///< Set by the executor: time of posting plus timeout.
  bool input_survives = false;  ///< True if the input is intact after a failure.
  std::shared_ptr<Completion> completion;
  std::uint16_t group = 0;  ///< 0: all ranks.
  Rank peer = -1;           ///< Other rank of a message, in the group; -1: any, or a collective.
  int tag = -1;             ///< Tag of a point-to-point message; -1 for collectives.
  int lane = 0;             ///< Lane of a collective.
  int segments = 0;         ///< Approximate number per message; 0: kSegmentsPerMessage.
  std::shared_ptr<const schedule::Splits>
      splits;                  ///< Parts of an all_to_all with unequal parts; else null.
  bool waits_at_once = false;  ///< OperationOptions::waits_at_once.
  /// A message of this rank to itself. Neither its send nor its receive has a `program`.
  bool sends_to_self = false;
  /// For a receive from any rank, whose `program` is null until the sender is known: creates the
  /// program for that sender, another rank of the engine.
  std::function<std::shared_ptr<const CompiledProgram>(Rank from)> program_from;
  /// Called for each op whenever bytes of it have been processed. Used for drawings; usually empty.
  std::function<void(schedule::OpIndex)> on_progress;
};

/// An operation in flight: the progress of each op of the program, in bytes. Knows memory and
/// order, but no streams.
class Operation {
 public:
  /// Binds the program to the request's memory.
  Operation(OperationKey key, OperationRequest request);

  /// Returns the scratch bytes that the request needs; bind_scratch() must be called before
  /// anything runs.
  std::size_t scratch_bytes() const { return slots_.back(); }
  void bind_scratch(std::byte* scratch);

  const OperationKey& key() const { return key_; }
  const OperationRequest& request() const { return request_; }
  const CompiledProgram& program() const { return *request_.program; }
  const Fingerprint& fingerprint() const { return request_.fingerprint; }

  /// Size of an op's message in bytes, and the bytes of it processed so far.
  std::size_t size(schedule::OpIndex op) const { return states_[op].size; }
  std::size_t done(schedule::OpIndex op) const { return states_[op].done; }
  bool complete(schedule::OpIndex op) const { return states_[op].complete; }
  bool all_complete() const { return incomplete_ == 0; }

  std::byte* destination(schedule::OpIndex op) const { return states_[op].dst; }
  const std::byte* source(schedule::OpIndex op) const { return states_[op].src; }

  /// Bytes of a message that may be sent, counted from its beginning. `last`: they are the whole
  /// message (the only indication for an empty message).
  struct Allowance {
    std::size_t bytes = 0;
    bool last = false;
  };
  Allowance allowance(schedule::OpIndex op) const;

  /// Records that the first `bytes` bytes of a send or receive are processed (`bytes == size(op)`
  /// completes it) and runs the local ops that become possible. Appends to `sends` the send ops
  /// that may have become able to continue.
  void advance(schedule::OpIndex op, std::size_t bytes, std::vector<schedule::OpIndex>& sends);

  /// Runs the ops without dependencies. Call once, before anything else.
  void start(std::vector<schedule::OpIndex>& sends);

  /// Returns true if messages to or from `peer` are incomplete.
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

  void bind(schedule::OpIndex op, std::byte* scratch);
  void run_local(schedule::OpIndex op, std::vector<schedule::OpIndex>& sends);
  void compute(const schedule::Op& op, const OpState& state, std::size_t from,
               std::size_t to) const;
  void wake_dependents(schedule::OpIndex op, std::vector<schedule::OpIndex>& sends);

  OperationKey key_;
  OperationRequest request_;
  std::vector<OpState> states_;
  std::size_t incomplete_ = 0;
  std::size_t element_size_ = 1;
  schedule::ChunkLayout layout_;
  std::vector<std::size_t> slots_;  ///< Offset of each scratch slot, and the total size.
};

}  // namespace gradwire::engine
