#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "gradwire/comm/operation.h"

namespace gradwire {

/// An operation in flight with what the executor keeps beside it: who has announced what to whom.
struct Flight {
  /// About one of those with whom messages are exchanged.
  struct Side {
    bool announced = false;       ///< It has told us that it has posted the operation too.
    std::uint32_t told_over = 0;  ///< Bit per rail: we have told it, ahead of all data there.
  };

  Flight(OperationKey key, Rank pair_peer, OperationRequest request)
      : operation(key, std::move(request)),
        pair(pair_peer),
        sides(operation.program().exchanges.size()) {}

  Operation operation;
  Rank pair;                ///< The other side of a point-to-point message; -1 for collectives.
  std::vector<Side> sides;  ///< Per exchange of the program.
  std::unique_ptr<std::byte[]> scratch;
  std::size_t scratch_capacity = 0;
  /// What has passed ahead of bytes before it, per op: beginning and end, in order.
  std::map<OpIndex, std::map<std::size_t, std::size_t>> ahead;
  OpIndex awaited = 0;  ///< No receive before this op is missing.
  /// A barrier sends nothing until the collectives posted before it in its lane have completed.
  bool held = false;
  std::vector<OpIndex> held_sends;  ///< What it sends once it is released.

  bool is_barrier() const { return operation.fingerprint().collective == Collective::barrier; }
  /// Returns true if this rank takes part by receiving a message that the sender has not announced:
  /// no peer depends on it yet.
  bool is_unanswered_receive() const {
    return pair >= 0 && !sides.front().announced &&
           operation.program().exchanges.front().sends.empty();
  }

  bool is(OperationKey key, Rank peer) const {
    return operation.key() == key && (pair < 0 || pair == peer);
  }

  /// Position of `peer` among the exchanges, or -1.
  int side_of(Rank peer) const {
    const auto& exchanges = operation.program().exchanges;
    const CompiledProgram::Exchange* exchange = operation.program().exchange_with(peer);
    return exchange == nullptr ? -1 : static_cast<int>(exchange - exchanges.data());
  }
  bool announced_by(Rank peer) const {
    const int side = side_of(peer);
    return side >= 0 && sides[static_cast<std::size_t>(side)].announced;
  }

  /// What `peer` is told of it.
  Fingerprint fingerprint_for(Rank peer) const;

  /// Bytes `begin` to `end` of a message have been sent, or have landed; those of several rails in
  /// any order. Returns how many from its beginning on now have.
  std::size_t passed(OpIndex op, std::size_t begin, std::size_t end);

  /// Whether any of these bytes have passed, ahead of those before them.
  bool passed_ahead(OpIndex op, std::size_t begin, std::size_t end) const;

  /// From whom the first missing message comes, in the order of the program; -1: none is missing.
  Rank awaits();
};

}  // namespace gradwire
