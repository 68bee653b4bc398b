#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "gradwire/comm/flight.h"

namespace gradwire {

/// The operations in flight of one rank: numbers them, finds them, and lends them scratch memory,
/// of which it keeps a few blocks for the next ones.
class FlightTable {
 public:
  explicit FlightTable(Rank self) : self_(self) {}

  /// Gives the operation the next number of its kind, and memory.
  Flight& add(OperationRequest request);

  /// The operation that `peer` means by `key`, or null.
  Flight* find(OperationKey key, Rank peer) const;

  /// The next message with this tag from `peer` that nobody has asked for.
  OperationKey next_from(Rank peer, int tag) const;

  /// Whether this rank has posted `key` already: if it is not in flight, it is over.
  bool was_posted(OperationKey key, Rank peer) const;

  /// Takes an operation out; its scratch is kept for others.
  std::unique_ptr<Flight> remove(const Flight& flight);
  std::vector<std::unique_ptr<Flight>> remove_all() { return std::exchange(flights_, {}); }

  const std::vector<std::unique_ptr<Flight>>& all() const { return flights_; }

  /// Returns true if a collective that was posted earlier in the same lane is in flight.
  bool has_earlier(const Flight& flight) const;

  /// Takes out the receives for which the sender has announced nothing (is_unanswered_receive).
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
  /// Per peer (-1 for collectives) and channel: how many there have been.
  std::map<std::pair<Rank, std::uint32_t>, std::uint64_t> posted_;
  std::vector<Scratch> spare_;
};

}  // namespace gradwire
