#pragma once

#include <array>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "gradwire/engine/executor.h"

/// What an executor keeps for each peer. Only for the executor's own source files.
namespace gradwire {

/// A budget for streams that are about to be closed.
inline constexpr std::size_t kToItsEnd = std::numeric_limits<std::size_t>::max();

/// One stream from a peer.
struct Executor::Rail final : Inbox::Handler {
  Rail(Executor& owner, StreamId id)
      : executor(owner),
        stream(id),
        inbox(owner.transport_.needs_checksums(id)),
        in_place(owner.transport_.reads_in_place(id)) {}

  Result<Landing> begin(const FrameHeader& header) override {
    return executor.begin_frame(*this, header);
  }
  Status complete(const FrameHeader& header) override {
    return executor.complete_frame(*this, header);
  }

  Executor& executor;
  StreamId stream;
  Inbox inbox;
  std::array<std::byte, kMaxControlPayload> control;  ///< Where control payloads land.
  bool in_place;
  bool early = false;    ///< The frame under way belongs to an operation not posted when it began.
  bool closed = false;   ///< Nothing more is read: the stream has ended, or is given up.
  bool garbled = false;  ///< What comes cannot be read any more; the peer can still be told why.
  bool goodbye = false;  ///< The peer has said that nothing more comes.
  bool unread = false;   ///< Is among Executor::unread_.

  // Failover and recovery, if the peer has several (see executor_rails.cpp).
  void fail(const Error& error, Time now);
  bool can_recover() const { return !closed && !broken && !goodbye; }

  bool failed = false;           ///< This rank writes no data to it.
  bool broken = false;           ///< The stream has ended by an error: it cannot recover.
  std::uint64_t generation = 0;  ///< Failures so far.
  bool peer_knows = false;       ///< The peer writes no data to it either.
  bool drained = false;          ///< This rank has read and reported what had arrived.
  bool resent = false;           ///< The peer has done so, and this rank has retransmitted.
  bool probed = false;           ///< This rank has written its probe.
  bool peer_probed = false;      ///< The peer's probe has arrived.
  Error why;
  Duration backoff{};                 ///< Before it is probed.
  Time probe_at{};                    ///< Not before.
  Time in_use_since{};                ///< When it last recovered.
  std::uint64_t received_bytes = 0;   ///< Of the stream, since the job started.
  std::uint64_t received_frames = 0;  ///< As reported when it was drained.
  std::uint64_t peer_written = 0;     ///< Bytes that the peer had written when it stopped.
  std::uint64_t stale_bytes = 0;      ///< Of these, to be discarded when they arrive.

  Time checked{};             ///< When it was last looked at whether bytes are delivered.
  Time moved{};               ///< When bytes were last delivered, or there were none to deliver.
  Time heard{};               ///< When bytes last came.
  std::size_t delivered = 0;  ///< When last looked at.
};

struct Executor::Peer {
  Peer(Executor& owner, Rank peer_rank)
      : rank(peer_rank), outbox(peer_rank, owner.options_.limits, owner.transport_) {
    for (int i = 0; i < owner.transport_.rails(peer_rank); ++i) {
      rails.push_back(std::make_unique<Rail>(owner, StreamId{peer_rank, i}));
    }
  }

  bool has_rails() const { return rails.size() > 1; }

  Rank rank;
  Outbox outbox;
  std::vector<std::unique_ptr<Rail>> rails;
  bool dirty = false;
  bool unwritten = false;      ///< Is among Executor::unwritten_.
  bool departed = false;       ///< Has said goodbye on all rails.
  bool closed = false;         ///< Its last stream has ended.
  std::size_t due = 0;         ///< Of look_ahead(): the least that an operation misses of it.
  std::size_t due_in_all = 0;  ///< What all operations together miss of it.
  bool in_turn = false;       ///< All operations that miss any of it need one peer after the other.
  bool later = false;         ///< All operations that miss any of it miss some of others first.
  double share = 1;           ///< Of the last switch's queue, that it has, or had when it sent.
  std::optional<Time> asked;  ///< When it was asked whether it is there, and has not answered.
  Time resumed{};             ///< When it was heard again after a pause.
  std::uint64_t round = 0;    ///< Of read_awaited(): the last that has asked it.
};

}  // namespace gradwire
