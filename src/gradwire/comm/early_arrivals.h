#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "gradwire/comm/operation.h"
#include "gradwire/net/frame.h"
#include "gradwire/net/transport.h"

namespace gradwire {

/// What peers have sent of operations that this rank has not posted yet: announcements, and the
/// small messages that travel ahead. Bounded per peer: senders keep to a budget (Outbox), and one
/// that does not is an error.
class EarlyArrivals {
 public:
  struct Announcement {
    Rank peer = -1;
    Fingerprint fingerprint;
  };
  struct Piece {
    Rank peer = -1;
    int rail = 0;
    FrameHeader header;
    std::vector<std::byte> payload;
    bool complete = false;
  };
  struct Operation {
    std::vector<Announcement> announcements;
    std::vector<Piece> pieces;
    std::uint64_t arrival = 0;  ///< Counts up with the first thing heard of each operation.
  };

  /// Announcements of operations not posted that are held for one peer: how far ranks may drift
  /// apart.
  static constexpr std::size_t kMostAnnouncements = 100'000;

  /// `most_bytes`: of payload, per peer.
  EarlyArrivals(int ranks, std::size_t most_bytes)
      : held_(static_cast<std::size_t>(ranks)), most_bytes_(most_bytes) {}

  /// Errors: corrupted, if the peer is too far ahead.
  Status announce(OperationKey key, Rank peer, const Fingerprint& fingerprint);

  /// Room for a payload: written to until the frame is complete. Errors: corrupted, if the peer has
  /// sent more than it may, or data ahead of its announcement.
  Result<std::byte*> make_room(StreamId from, const FrameHeader& header);

  /// The payload of `key` that is coming over a stream has come to its end.
  void complete(OperationKey key, StreamId from);

  /// What was still coming over a stream will not come, or once more over another one.
  void abandon(StreamId from);

  /// Payload bytes that are held for a peer.
  std::size_t held_bytes(Rank peer) const { return held_[static_cast<std::size_t>(peer)].bytes; }

  /// When `peer` announced `key`: the lower, the earlier. Nothing: not yet.
  std::optional<std::uint64_t> announced_at(OperationKey key, Rank peer) const;

  /// Takes out what has come for an operation that is now posted; `pair`: as in Flight. A payload
  /// that is still coming stays until it is complete and this is asked again.
  Operation take(OperationKey key, Rank pair);

  /// Drops everything.
  void clear() { operations_.clear(); }

 private:
  /// Collectives are shared by all peers; messages between two ranks are keyed by the other one.
  struct Key {
    std::uint32_t channel;
    std::uint64_t sequence;
    Rank pair;
    auto operator<=>(const Key&) const = default;
  };
  static Key key_of(OperationKey key, Rank peer) {
    return {key.channel, key.sequence, key.is_message() ? peer : -1};
  }
  struct Held {
    std::size_t bytes = 0;
    std::size_t announcements = 0;
  };

  Operation& held_for(OperationKey key, Rank peer);
  void refund(const Operation& operation);

  std::map<Key, Operation> operations_;
  std::vector<Held> held_;  ///< Per peer.
  std::size_t most_bytes_;
  std::uint64_t arrivals_ = 0;
};

}  // namespace gradwire
