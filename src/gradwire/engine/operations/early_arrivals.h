#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "gradwire/engine/operations/operation.h"
#include "gradwire/net/frame.h"
#include "gradwire/net/transport.h"

namespace gradwire::engine {

/// Announcements and eager messages that peers have sent for operations not yet posted here. Memory
/// is bounded per peer: senders respect the eager credit (Outbox); exceeding it is an error.
class EarlyArrivals {
 public:
  struct Announcement {
    Rank peer = -1;
    Fingerprint fingerprint;
  };
  struct Piece {
    Rank peer = -1;
    int rail = 0;
    net::FrameHeader header;
    std::vector<std::byte> payload;
    bool complete = false;
  };
  struct Operation {
    std::vector<Announcement> announcements;
    std::vector<Piece> pieces;
    /// Position in the order of the first frame of each operation.
    std::uint64_t arrival = 0;
  };

  /// Maximum announcements held per peer for operations not yet posted: how far ranks may drift
  /// apart.
  static constexpr std::size_t kMaxAnnouncements = 100'000;

  /// `max_bytes`: maximum payload bytes held per peer.
  EarlyArrivals(int ranks, std::size_t max_bytes)
      : held_(static_cast<std::size_t>(ranks)), max_bytes_(max_bytes) {}

  /// Fails with corrupted if the peer is too far ahead.
  Status add_announcement(OperationKey key, Rank peer, const Fingerprint& fingerprint);

  /// Returns memory for a payload, which is written to until the frame is complete. Fails with
  /// corrupted if the peer exceeds its eager credit or sends data before its announcement.
  Result<std::byte*> make_room(net::StreamId from, const net::FrameHeader& header);

  /// Marks the payload of `key` that arrives over stream `from` as complete.
  void complete(OperationKey key, net::StreamId from);

  /// Drops the incomplete payload of a broken stream; it is lost or will be resent over another
  /// one.
  void abandon(net::StreamId from);

  /// Returns the payload bytes held for a peer.
  std::size_t held_bytes(Rank peer) const { return held_[static_cast<std::size_t>(peer)].bytes; }

  /// Returns the arrival number of something that did not come from a peer.
  std::uint64_t next_arrival() { return arrivals_++; }

  /// Returns the arrival number of `key` if `peer` has announced it; lower is earlier.
  std::optional<std::uint64_t> announced_at(OperationKey key, Rank peer) const;

  /// Removes and returns everything that has arrived for an operation that is posted. `pair`: as in
  /// InFlightOperation. Incomplete payloads stay until they are complete and this is called again.
  Operation take(OperationKey key, Rank pair);

  /// Drops everything from a peer.
  void forget(Rank peer);

  /// Drops everything.
  void clear() { operations_.clear(); }

 private:
  /// Collectives have one entry for all peers; messages between two ranks are keyed by the peer.
  struct Key {
    std::uint16_t group;
    std::uint32_t channel;
    std::uint64_t sequence;
    Rank pair;
    auto operator<=>(const Key&) const = default;
  };
  static Key key_of(OperationKey key, Rank peer) {
    return {key.group, key.channel, key.sequence, key.is_message() ? peer : -1};
  }
  struct Held {
    std::size_t bytes = 0;
    std::size_t announcements = 0;
  };

  Operation& held_for(OperationKey key, Rank peer);
  void refund(const Operation& operation);

  std::map<Key, Operation> operations_;
  std::vector<Held> held_;  ///< Per peer.
  std::size_t max_bytes_;
  std::uint64_t arrivals_ = 0;
};

}  // namespace gradwire::engine
