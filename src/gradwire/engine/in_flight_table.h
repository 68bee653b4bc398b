#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "gradwire/engine/in_flight_operation.h"

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

  /// Returns the key of the next message with this tag from `peer` for which no receive is posted.
  OperationKey next_from(Rank peer, int tag) const;

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

  /// Removes the receives for which the sender has announced nothing (is_unanswered_receive).
  std::vector<std::unique_ptr<InFlightOperation>> remove_unanswered_receives();

 private:
  struct Scratch {
    std::unique_ptr<std::byte[]> memory;
    std::size_t capacity = 0;
  };

  OperationKey next_key(const OperationRequest& request, Rank& pair);
  Scratch take_scratch(std::size_t bytes);

  Rank self_;
  std::vector<std::unique_ptr<InFlightOperation>> in_flight_;
  /// Operations posted so far, per peer (-1 for collectives) and channel.
  std::map<std::pair<Rank, std::uint32_t>, std::uint64_t> posted_;
  std::vector<Scratch> spare_;
};

}  // namespace gradwire::engine
