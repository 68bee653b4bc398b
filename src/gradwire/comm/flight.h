#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "gradwire/comm/operation.h"

namespace gradwire {

/// An operation in flight with what the executor keeps beside it: which peers have announced that
/// they have posted it too.
struct Flight {
  Flight(OperationKey key, Rank pair_peer, OperationRequest request)
      : operation(key, std::move(request)),
        pair(pair_peer),
        announced(operation.program().exchanges.size(), false) {}

  Operation operation;
  Rank pair;                    ///< The other side of a point-to-point message; -1 for collectives.
  std::vector<bool> announced;  ///< Per exchange of the program.
  std::unique_ptr<std::byte[]> scratch;
  std::size_t scratch_capacity = 0;

  bool is(OperationKey key, Rank peer) const {
    return operation.key() == key && (pair < 0 || pair == peer);
  }

  /// Position of `peer` among the exchanges, or -1.
  int exchange_index(Rank peer) const {
    const auto& exchanges = operation.program().exchanges;
    const CompiledProgram::Exchange* exchange = operation.program().exchange_with(peer);
    return exchange == nullptr ? -1 : static_cast<int>(exchange - exchanges.data());
  }
  bool announced_by(Rank peer) const {
    const int index = exchange_index(peer);
    return index >= 0 && announced[static_cast<std::size_t>(index)];
  }
};

}  // namespace gradwire
