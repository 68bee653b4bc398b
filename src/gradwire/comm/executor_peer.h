#pragma once

#include <array>
#include <memory>
#include <vector>

#include "gradwire/comm/executor.h"

/// What an executor keeps for each peer. Only for the executor's own source files.
namespace gradwire {

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
  bool closed = false;   ///< The stream has ended.
  bool garbled = false;  ///< What comes cannot be read any more; the peer can still be told why.
};

struct Executor::Peer {
  Peer(Executor& owner, Rank peer_rank)
      : rank(peer_rank), outbox(peer_rank, owner.options_.limits, owner.transport_) {
    for (int i = 0; i < owner.transport_.rails(peer_rank); ++i) {
      rails.push_back(std::make_unique<Rail>(owner, StreamId{peer_rank, i}));
    }
  }

  Rank rank;
  Outbox outbox;
  std::vector<std::unique_ptr<Rail>> rails;
  bool dirty = false;
  bool departed = false;    ///< Has said goodbye.
  bool closed = false;      ///< Its last stream has ended.
  std::uint64_t round = 0;  ///< Of read_awaited(): the last that has asked it.
};

}  // namespace gradwire
