#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "gradwire/engine/operations/operation.h"

namespace gradwire::engine {

/// Messages that a rank has sent to itself and not yet received. They are copies, so that a send
/// completes at once, like a small message to a peer. Not thread-safe.
class SelfMessages {
 public:
  struct Message {
    Fingerprint fingerprint;
    std::uint64_t arrival = 0;  ///< Position in the order of EarlyArrivals.
    std::vector<std::byte> payload;
  };

  void add(const OperationRequest& send, std::uint64_t arrival);

  /// Returns the oldest message with the receive's group and tag; null if there is none.
  const Message* next(const OperationRequest& receive) const;

  /// Removes what next() returned.
  void remove_next(const OperationRequest& receive);

  void clear() { messages_.clear(); }

 private:
  using Key = std::pair<std::uint16_t, int>;  ///< Group and tag.
  static Key key_of(const OperationRequest& request) { return {request.group, request.tag}; }

  std::map<Key, std::deque<Message>> messages_;
};

}  // namespace gradwire::engine
