#include "gradwire/engine/operations/early_arrivals.h"

#include <algorithm>
#include <utility>

namespace gradwire::engine {
namespace {

Status too_far_ahead() {
  return failure(ErrorKind::corrupted,
                 "more data ahead of posted operations than the protocol allows: it runs another "
                 "version of gradwire, or this "
                 "rank has fallen far behind in its calls");
}

}  // namespace

Status EarlyArrivals::add_announcement(OperationKey key, Rank peer,
                                       const Fingerprint& fingerprint) {
  Held& held = held_[static_cast<std::size_t>(peer)];
  if (held.announcements == kMaxAnnouncements) return too_far_ahead();
  ++held.announcements;
  held_for(key, peer).announcements.push_back({peer, fingerprint});
  return {};
}

EarlyArrivals::Operation& EarlyArrivals::held_for(OperationKey key, Rank peer) {
  const auto [at, is_new] = operations_.try_emplace(key_of(key, peer));
  if (is_new) at->second.arrival = arrivals_++;
  return at->second;
}

Result<std::byte*> EarlyArrivals::make_room(net::StreamId from, const net::FrameHeader& header) {
  Held& held = held_[static_cast<std::size_t>(from.peer)];
  if (held.bytes + header.length > max_bytes_) return tl::unexpected(too_far_ahead().error());
  Operation& operation = held_for({header.channel, header.sequence, header.group}, from.peer);
  if (std::ranges::none_of(operation.announcements,
                           [&](const Announcement& a) { return a.peer == from.peer; })) {
    return failure(ErrorKind::corrupted, "data for an operation that it has not announced");
  }
  held.bytes += header.length;
  operation.pieces.push_back(
      {from.peer, from.rail, header, std::vector<std::byte>(header.length), false});
  return operation.pieces.back().payload.data();
}

void EarlyArrivals::complete(OperationKey key, net::StreamId from) {
  const auto at = operations_.find(key_of(key, from.peer));
  if (at == operations_.end()) return;
  // A stream carries one frame after the other, so at most one of its pieces is incomplete.
  for (Piece& piece : at->second.pieces) {
    if (net::StreamId{piece.peer, piece.rail} != from || piece.complete) continue;
    piece.complete = true;
    return;
  }
}

void EarlyArrivals::abandon(net::StreamId from) {
  Held& held = held_[static_cast<std::size_t>(from.peer)];
  for (auto& [key, operation] : operations_) {
    std::erase_if(operation.pieces, [&](const Piece& piece) {
      const bool gone = net::StreamId{piece.peer, piece.rail} == from && !piece.complete;
      if (gone) held.bytes -= piece.payload.size();
      return gone;
    });
  }
}

void EarlyArrivals::forget(Rank peer) {
  for (auto at = operations_.begin(); at != operations_.end();) {
    Operation& operation = at->second;
    std::erase_if(operation.announcements, [&](const Announcement& a) { return a.peer == peer; });
    std::erase_if(operation.pieces, [&](const Piece& piece) { return piece.peer == peer; });
    const bool empty = operation.announcements.empty() && operation.pieces.empty();
    at = empty ? operations_.erase(at) : std::next(at);
  }
  held_[static_cast<std::size_t>(peer)] = {};
}

std::optional<std::uint64_t> EarlyArrivals::announced_at(OperationKey key, Rank peer) const {
  const auto at = operations_.find(key_of(key, peer));
  if (at == operations_.end() || at->second.announcements.empty()) return std::nullopt;
  return at->second.arrival;
}

EarlyArrivals::Operation EarlyArrivals::take(OperationKey key, Rank pair) {
  const auto at = operations_.find(key_of(key, pair));
  if (at == operations_.end()) return {};
  Operation operation = std::move(at->second);
  Operation coming{.arrival = operation.arrival};
  for (Piece& piece : operation.pieces) {
    if (!piece.complete) coming.pieces.push_back(std::move(piece));
  }
  std::erase_if(operation.pieces, [](const Piece& piece) { return !piece.complete; });
  if (coming.pieces.empty()) {
    operations_.erase(at);
  } else {
    at->second = std::move(coming);
  }
  refund(operation);
  return operation;
}

void EarlyArrivals::refund(const Operation& operation) {
  for (const Announcement& a : operation.announcements) {
    --held_[static_cast<std::size_t>(a.peer)].announcements;
  }
  for (const Piece& p : operation.pieces) {
    held_[static_cast<std::size_t>(p.peer)].bytes -= p.payload.size();
  }
}

}  // namespace gradwire::engine
