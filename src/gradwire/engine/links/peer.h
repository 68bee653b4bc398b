#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gradwire/base/types.h"
#include "gradwire/engine/links/inbox.h"
#include "gradwire/engine/links/outbox.h"
#include "gradwire/net/transport.h"

/// The executor's state per peer.
namespace gradwire::engine {

/// One stream from a peer.
struct Rail {
  Rail(const net::Transport& transport, net::StreamId id)
      : stream(id), inbox(transport.needs_checksums(id)), in_place(transport.reads_in_place(id)) {}

  net::StreamId stream;
  Inbox inbox;
  std::array<std::byte, net::kMaxControlPayload> control;  ///< Destination of control payloads.
  bool in_place;
  bool early = false;  ///< The current frame is for an operation that was not posted when it began.
  bool closed = false;   ///< Not read any more: the stream has ended or was abandoned.
  bool corrupt = false;  ///< Input is corrupted and not read; writing to the peer still works.
  bool goodbye = false;  ///< The peer has sent its last frame on this rail.
  bool unread = false;   ///< Has a deferred read.
  bool accepts_input() const { return !closed && !corrupt; }

  // Failover and recovery, if the peer has several rails (RailFailover).
  bool can_recover() const { return !closed && !broken && !goodbye; }

  bool failed = false;           ///< This rank writes no data to it.
  bool broken = false;           ///< The stream ended with an error: it cannot recover.
  std::uint64_t generation = 0;  ///< Number of failures.
  bool peer_knows = false;       ///< The peer writes no data to it either.
  bool drained = false;          ///< This rank has read all arrived bytes and reported them.
  bool resent = false;           ///< The peer has drained it, and this rank has retransmitted.
  bool probed = false;           ///< This rank has written its probe.
  bool peer_probed = false;      ///< The peer's probe has arrived.
  Error why;
  Duration backoff{};                 ///< Delay before the probe.
  Time probe_at{};                    ///< Earliest time of the probe.
  Time in_use_since{};                ///< Time of the last recovery.
  std::uint64_t received_bytes = 0;   ///< On the stream, since the job started.
  std::uint64_t received_frames = 0;  ///< Frames reported when it was drained.
  std::uint64_t peer_written = 0;     ///< Bytes that the peer had written when it stopped.
  std::uint64_t stale_bytes = 0;      ///< Bytes of these not yet arrived; discarded on arrival.

  Time checked{};             ///< Time of the last progress check.
  Time moved{};               ///< Last check that saw delivered bytes, or none to deliver.
  Time last_received{};       ///< Time of the last received bytes.
  std::size_t delivered = 0;  ///< At the last progress check.
};

struct Peer {
  Peer(Rank peer_rank, const OutboxLimits& limits, net::Transport& transport)
      : rank(peer_rank), outbox(peer_rank, limits, transport) {
    for (int i = 0; i < transport.rails(peer_rank); ++i) {
      rails.push_back(std::make_unique<Rail>(transport, net::StreamId{peer_rank, i}));
    }
  }

  bool has_rails() const { return rails.size() > 1; }

  Rank rank;
  Outbox outbox;
  std::vector<std::unique_ptr<Rail>> rails;
  bool dirty = false;
  bool unwritten = false;      ///< Has deferred writes.
  bool departed = false;       ///< Has sent goodbye on all rails.
  std::string failure;         ///< Why it left early, as its goodbye says; "" if it did not.
  bool closed = false;         ///< Its last stream has ended.
  std::optional<Error> error;  ///< It failed the operations with this peer (FailureDomain::pair).
  std::size_t due = 0;         ///< Minimum over operations of missing bytes (receive_demand.h).
  std::size_t total_due = 0;   ///< Missing bytes of all operations together.
  bool sequential = false;     ///< All operations with missing bytes need one peer after the other.
  bool not_next = false;       ///< All operations with missing bytes need other peers first.
  double window_share = 1;     ///< Share of the last switch's queue, from when it last sent.
  std::optional<Time> pinged_at;  ///< Time of a ping that is not answered yet.
  Time resumed{};                 ///< Time of its answer after a pause.
  std::uint64_t round = 0;        ///< Last round of read_awaited() that read from it.
};

/// All peers, by rank; null at this rank.
using Peers = std::vector<std::unique_ptr<Peer>>;

}  // namespace gradwire::engine
