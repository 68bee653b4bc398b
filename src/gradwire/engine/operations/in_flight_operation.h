#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "gradwire/engine/operations/operation.h"

namespace gradwire::engine {

/// An operation in flight with the executor's state for it, such as which peers have announced it.
struct InFlightOperation {
  /// State of the exchange with one peer.
  struct PeerState {
    bool announced = false;             ///< The peer has announced the operation.
    std::uint32_t announced_rails = 0;  ///< Bit per rail: announced there.
  };

  InFlightOperation(OperationKey key, Rank pair_peer, OperationRequest request)
      : operation(key, std::move(request)),
        pair(pair_peer),
        peer_states(operation.program().exchanges.size()) {}

  Operation operation;
  Rank pair;  ///< The other side of a point-to-point message; -1 for collectives.
  std::vector<PeerState> peer_states;  ///< Per exchange of the program.
  std::unique_ptr<std::byte[]> scratch;
  std::size_t scratch_capacity = 0;
  /// Byte ranges (begin to end, ordered) sent or received before earlier bytes of the message, per
  /// op.
  std::map<schedule::OpIndex, std::map<std::size_t, std::size_t>> out_of_order;
  schedule::OpIndex next_receive = 0;  ///< All receives before this op are complete.
  /// A barrier sends nothing until the collectives posted before it in its lane have completed.
  bool held = false;
  std::vector<schedule::OpIndex> held_sends;  ///< Sends to post once the barrier is released.

  bool is_barrier() const {
    return operation.fingerprint().collective == schedule::Collective::barrier;
  }
  /// Returns true for a receive whose sender has not announced its message: no peer depends on it
  /// yet.
  bool is_unanswered_receive() const {
    return pair >= 0 && !peer_states.front().announced &&
           operation.program().exchanges.front().sends.empty();
  }

  bool is(OperationKey key, Rank peer) const {
    return operation.key() == key && (pair < 0 || pair == peer);
  }

  /// Returns the index of `peer` among the exchanges, or -1.
  int exchange_index(Rank peer) const {
    const auto& exchanges = operation.program().exchanges;
    const CompiledProgram::Exchange* exchange = operation.program().exchange_with(peer);
    return exchange == nullptr ? -1 : static_cast<int>(exchange - exchanges.data());
  }
  bool announced_by(Rank peer) const {
    const int index = exchange_index(peer);
    return index >= 0 && peer_states[static_cast<std::size_t>(index)].announced;
  }

  /// Returns the fingerprint that is announced to `peer`.
  Fingerprint fingerprint_for(Rank peer) const;

  /// Records that bytes `begin` to `end` of a message have been sent or received; several rails do
  /// so in any order. Returns the length of the contiguous prefix that is complete.
  std::size_t record_range(schedule::OpIndex op, std::size_t begin, std::size_t end);

  /// Returns true if any of these bytes were recorded ahead of bytes before them.
  bool has_out_of_order(schedule::OpIndex op, std::size_t begin, std::size_t end) const;

  /// Returns the peer of the first incomplete receive in program order; -1 if all are complete.
  Rank next_expected_peer();
};

}  // namespace gradwire::engine
