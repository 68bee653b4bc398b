#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "gradwire/comm/executor_peer.h"

/// What happens when one of several rails to a peer is lost.
///
/// Nothing may be lost with it, and nothing come twice. Whoever notices stops using it and says so
/// over another rail; who hears that stops too. Each then knows that the other writes nothing more
/// and counts no more bytes as delivered: so when it now reads what is there to its end, it has got
/// at least what the other has ceased to keep. It says how many frames that were, and the other
/// sends those behind them again.
namespace gradwire {
namespace {

constexpr Duration kCheckEvery = std::chrono::milliseconds(50);

/// After this long without movement the peer is asked, over the other rails, whether it is there.
constexpr Duration kAskAfter = std::chrono::milliseconds(100);

/// After this long a rail is given up, if the peer has been heard on another since it was asked. A
/// healthy one may lose a packet, and then what was sent again in its place: TCP waits for 200 ms
/// each time at least (its probe of the tail, and its timer), and a rail is given up for good.
constexpr Duration kGiveUpAfter = std::chrono::milliseconds(700);

/// A peer that took so long to answer on any rail did not run. Not less: late packets make gaps of
/// 200 ms, and each pause puts off the loss of a rail that is dead.
constexpr Duration kPause = kGiveUpAfter / 2;

/// Losses of a rail so soon after one another have one cause.
constexpr Duration kSameCause = std::chrono::seconds(2);

}  // namespace

void Executor::give_up(Rail& rail, const Error& why) {
  if (rail.lost) return;
  rail.lost = true;
  rail.why = why;
  Peer& from = peer(rail.stream.peer);
  const bool others = from.outbox.stop(rail.stream.rail);
  if (!others) {
    lose_peer(from.rank, why);
    return;
  }
  // If the peer leaves, it wants nothing more of us, and what we wanted of it has come.
  if (rail.goodbye || error_) {
    rail.closed = true;
    if (said_goodbye_) say_goodbye_on(rail);
    return;
  }
  // With this one may be lost what was said of others, on which its own settlement may wait.
  for (const auto& each : from.rails) {
    if (each->lost && !each->goodbye) tell_rail_lost(*each);
  }
}

void Executor::tell_rail_lost(const Rail& rail) {
  Outbox& outbox = peer(rail.stream.peer).outbox;
  outbox.queue_control({.type = FrameType::rail_lost,
                        .channel = rail.settled ? 1u : 0u,
                        .message = static_cast<std::uint32_t>(rail.stream.rail),
                        .offset = rail.settled ? rail.inbox.frames() : 0});
  mark_dirty(rail.stream.peer);
}

Status Executor::hear_rail_lost(Rail& over, const FrameHeader& header) {
  Peer& from = peer(over.stream.peer);
  if (error_) return {};
  // A request that was lost with another rail may come over the very one that it is about.
  const bool same = header.message == static_cast<std::uint32_t>(over.stream.rail);
  if (header.channel == 2 && same) return {};
  if (header.message >= from.rails.size() || same) {
    return failure(ErrorKind::corrupted, "the loss of a rail that cannot be lost");
  }
  Rail& rail = *from.rails[header.message];
  if (header.channel == 2) {
    if (rail.lost) {
      tell_rail_lost(rail);
    } else {
      doubted_.push_back(rail.stream);  // Not here, for the same reason as below.
    }
    return {};
  }
  if (!std::exchange(rail.peer_knows, true)) {
    give_up(rail, {ErrorKind::disconnected, "the other side has given it up"});
    settling_.push_back(rail.stream);  // Not here: what is being read uses the same buffer.
  }
  if (header.channel == 0 || std::exchange(rail.resent, true)) return {};
  notice_lost(rail);
  if (Status again = from.outbox.send_again(rail.stream.rail, header.offset); !again) {
    fail(again.error().kind,
         fmt::format("the connection to {} broke: {}", transport_.describe(rail.stream),
                     again.error().message),
         rank_);
    return {};
  }
  if (said_goodbye_) say_goodbye_on(rail);
  mark_dirty(from.rank);
  return {};
}

void Executor::settle() {
  while (!settling_.empty()) {
    const StreamId stream = settling_.back();
    settling_.pop_back();
    if (!error_) settle(rail(stream));
  }
  for (const StreamId stream : std::exchange(doubted_, {})) reconsider(rail(stream));
}

/// Gives up a rail that the peer finds dead, unless something has come of it by now: the request
/// may be late, or this process may have stood still and not have read what is there.
void Executor::reconsider(Rail& rail) {
  if (still_reads(rail)) read(rail, kToItsEnd);
  const bool silent = now_ - rail.heard >= kAskAfter;
  if (error_ || rail.lost || !silent || peer(rail.stream.peer).outbox.live_rails() == 1) return;
  give_up(rail, {ErrorKind::disconnected, fmt::format("the link from {} delivers nothing",
                                                      transport_.describe(rail.stream))});
}

/// Notes that a peer is heard, perhaps after a pause, for which no rail is to blame.
void Executor::note_answer(Peer& peer) const {
  if (!peer.asked) return;
  if (now_ - *peer.asked >= kPause) peer.resumed = now_;
  peer.asked.reset();
}

/// The peer writes nothing more there: reads what it has written, and says how much that was.
void Executor::settle(Rail& rail) {
  if (still_reads(rail)) read(rail, kToItsEnd);
  if (error_) return;
  rail.closed = true;
  rail.settled = true;
  early_.abandon(rail.stream);
  transport_.close(rail.stream);
  tell_rail_lost(rail);
}

/// One cable has rails to many peers: it is reported for the first that notices.
void Executor::notice_lost(const Rail& rail) {
  const auto [reported, first] = notices_.try_emplace(rail.stream.rail, now_);
  const Time before = std::exchange(reported->second, now_);
  if (!options_.notice || (!first && now_ - before < kSameCause)) return;
  const StreamId left{rail.stream.peer, peer(rail.stream.peer).outbox.first_rail()};
  options_.notice(fmt::format("rail {} is gone ({}); going on with {}", rail.stream.rail,
                              rail.why.message, transport_.describe(left)));
}

void Executor::hear_ping(Rail& rail, const FrameHeader& header) {
  if (header.message == 0 || rail.lost || error_) return;
  peer(rail.stream.peer).outbox.queue_control_on(rail.stream.rail, {.type = FrameType::ping});
  mark_dirty(rail.stream.peer);
}

/// Something may be under way that a rail does not deliver.
void Executor::watch_rails(const Peer& peer) {
  if (check_rails_at_ != Time::max() || error_) return;
  const bool under_way = std::ranges::any_of(peer.rails, [&](const auto& rail) {
    return !rail->lost && peer.outbox.undelivered(rail->stream.rail);
  });
  if (under_way) check_rails_at_ = now_ + kCheckEvery;
}

void Executor::check_rails(Time now) {
  check_rails_at_ = Time::max();
  for (const auto& peer : peers_) {
    if (error_) return;
    if (!peer || peer->closed || !peer->has_rails()) continue;
    peer->outbox.confirm();
    for (const auto& rail : peer->rails) {
      if (!rail->lost) check_rail(*peer, *rail, now);
    }
    mark_dirty(peer->rank);  // A rail that is slower than it was leaves more to the others.
    watch_rails(*peer);
  }
}

void Executor::check_rail(Peer& peer, Rail& rail, Time now) {
  const Outbox& outbox = peer.outbox;
  const int index = rail.stream.rail;
  const std::size_t delivered = outbox.delivered(index);
  if (std::exchange(rail.delivered, delivered) != delivered || !outbox.undelivered(index) ||
      now - rail.checked > 2 * kCheckEvery) {
    rail.moved = now;
  }
  rail.checked = now;
  if (now - rail.moved < kAskAfter || outbox.live_rails() == 1) return;
  // After a pause of the peer it needs time to read what waits for it, one rail after the other.
  const Time since = std::max(rail.moved, peer.resumed);
  const Time asked = since + kAskAfter;
  if (!peer.asked) peer.asked = now;
  bool heard = false;
  for (const auto& other : peer.rails) {
    if (other->lost || other.get() == &rail) continue;
    heard = heard || other->heard > asked;
    peer.outbox.queue_control_on(other->stream.rail, {.type = FrameType::ping, .message = 1});
    mark_dirty(peer.rank);
  }
  if (!heard || now - since < kGiveUpAfter) return;
  if (rank_ < peer.rank) {
    give_up(rail, {ErrorKind::disconnected, fmt::format("the link to {} delivers nothing",
                                                        transport_.describe(rail.stream))});
  } else {
    ask_to_give_up(peer, rail);
  }
}

/// If both sides gave up rails that only stand still, each might choose another one, and none would
/// be left: the lower rank does it for both.
void Executor::ask_to_give_up(Peer& peer, const Rail& rail) {
  const auto other =
      std::ranges::find_if(peer.rails, [&](const auto& r) { return !r->lost && r.get() != &rail; });
  if (other == peer.rails.end()) return;
  peer.outbox.queue_control_on((*other)->stream.rail,
                               {.type = FrameType::rail_lost,
                                .channel = 2,
                                .message = static_cast<std::uint32_t>(rail.stream.rail)});
  mark_dirty(peer.rank);
}

}  // namespace gradwire
