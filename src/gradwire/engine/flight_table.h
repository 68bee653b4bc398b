#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "gradwire/engine/flight.h"

namespace gradwire {

/// The operations in flight of one rank. Numbers them, finds them and lends them scratch memory; a
/// few scratch blocks are kept for reuse.
class FlightTable {
 public:
  explicit FlightTable(Rank self) : self_(self) {}

  /// Adds an operation: assigns the next sequence number of its channel and scratch memory.
  Flight& add(OperationRequest request);

  /// Returns the operation that `peer` identifies by `key`, or null.
  Flight* find(OperationKey key, Rank peer) const;

  /// Returns the key of the next message with this tag from `peer` for which no receive is posted.
  OperationKey next_from(Rank peer, int tag) const;

  /// Returns true if this rank has posted `key`; if it is not in flight, it is complete.
  bool was_posted(OperationKey key, Rank peer) const;

  /// Removes an operation and keeps its scratch memory for reuse.
  std::unique_ptr<Flight> remove(const Flight& flight);
  std::vector<std::unique_ptr<Flight>> remove_all() { return std::exchange(flights_, {}); }

  const std::vector<std::unique_ptr<Flight>>& all() const { return flights_; }

  /// Returns true if a collective that was posted earlier in the same lane is in flight.
  bool has_earlier(const Flight& flight) const;

  /// Removes the receives for which the sender has announced nothing (is_unanswered_receive).
  std::vector<std::unique_ptr<Flight>> remove_unanswered_receives();

 private:
  struct Scratch {
    std::unique_ptr<std::byte[]> memory;
    std::size_t capacity = 0;
  };

  OperationKey next_key(const OperationRequest& request, Rank& pair);
  Scratch take_scratch(std::size_t bytes);

  Rank self_;
  std::vector<std::unique_ptr<Flight>> flights_;
  /// Operations posted so far, per peer (-1 for collectives) and channel.
  std::map<std::pair<Rank, std::uint32_t>, std::uint64_t> posted_;
  std::vector<Scratch> spare_;
};

}  // namespace gradwire
