#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "gradwire/engine/operations/in_flight_operation.h"

namespace gradwire::engine {

/// The operations in flight of one rank. Numbers them, finds them and lends them scratch memory; a
/// few scratch blocks are kept for reuse.
class InFlightTable {
 public:
  explicit InFlightTable(Rank self) : self_(self) {}

  /// Adds an operation: assigns the next sequence number of its channel and scratch memory.
  InFlightOperation& add(OperationRequest request);

  /// Returns the operation that `peer` identifies by `key`, or null.
  InFlightOperation* find(OperationKey key, Rank peer) const;

  /// Returns the key of the next message that a receive from any rank would match if it were from
  /// `peer`.
  OperationKey next_from(Rank peer, const OperationRequest& receive) const;

  /// Returns true if this rank has posted `key`; if it is not in flight, it is complete.
  bool was_posted(OperationKey key, Rank peer) const;

  /// Removes an operation and keeps its scratch memory for reuse.
  std::unique_ptr<InFlightOperation> remove(const InFlightOperation& flight);
  std::vector<std::unique_ptr<InFlightOperation>> remove_all() {
    return std::exchange(in_flight_, {});
  }

  const std::vector<std::unique_ptr<InFlightOperation>>& all() const { return in_flight_; }

  /// Returns true if a collective that was posted earlier in the same lane is in flight.
  bool has_earlier_in_lane(const InFlightOperation& flight) const;

  /// Removes the operations that exchange messages with a peer.
  std::vector<std::unique_ptr<InFlightOperation>> remove_with(Rank peer);

  /// Removes the receives for which the sender has announced nothing (is_unanswered_receive).
  std::vector<std::unique_ptr<InFlightOperation>> remove_unanswered_receives();

 private:
  struct Scratch {
    std::unique_ptr<std::byte[]> memory;
    std::size_t capacity = 0;
  };

  /// A sequence of operations: of a peer's messages, or (-1) of collectives.
  struct Sequence {
    Rank peer;
    std::uint16_t group;
    std::uint32_t channel;
    auto operator<=>(const Sequence&) const = default;
  };

  template <class Condition>
  std::vector<std::unique_ptr<InFlightOperation>> remove_if(const Condition& condition);
  OperationKey next_key(const OperationRequest& request, Rank& pair);
  Scratch take_scratch(std::size_t bytes);

  Rank self_;
  std::vector<std::unique_ptr<InFlightOperation>> in_flight_;
  std::map<Sequence, std::uint64_t> posted_;  ///< Operations posted so far.
  std::vector<Scratch> spare_;
};

}  // namespace gradwire::engine
