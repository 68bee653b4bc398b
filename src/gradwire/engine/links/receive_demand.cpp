#include "gradwire/engine/links/receive_demand.h"

#include <algorithm>

namespace gradwire::engine {
namespace {

/// Bytes that may arrive before a wake-up: a small fraction (1 / kDueDivisor) of an operation's
/// missing bytes, because each hop adds this delay; at most kMaxExpected, so that they stay in the
/// cache.
constexpr std::size_t kDueDivisor = 128;
constexpr std::size_t kMaxExpected = 256 * 1024;

/// A peer with at least this many missing bytes counts as a concurrent sender (incast control).
constexpr std::size_t kLargeDue = 64 * 1024;

/// Share of the last switch's queue for a peer whose turn comes later. It may be ahead of the
/// others, and its bytes must not delay those of the stragglers.
constexpr double kNotNextShare = 1.0 / 6;

/// Share of all peers together where some are ahead: a single stream fills a port with fewer bytes
/// in flight than several that take turns.
constexpr double kSequentialShare = 2.0 / 3;

/// Computes the bytes that operations still miss from a peer.
void update_due(Peer& from, const InFlightTable& in_flight) {
  from.due = 0;
  from.total_due = 0;
  bool sequential = true, not_next = true;
  for (const auto& flight : in_flight.all()) {
    const Operation& operation = flight->operation;
    const CompiledProgram::Exchange* exchange = operation.program().exchange_with(from.rank);
    if (exchange == nullptr) continue;
    std::size_t due = 0;
    for (const schedule::OpIndex op : exchange->receives)
      due += operation.size(op) - operation.done(op);
    if (due == 0) continue;
    from.due = from.due == 0 ? due : std::min(from.due, due);
    from.total_due += due;
    sequential = sequential && operation.program().schedule.sequential_peers;
    not_next = not_next && sequential && flight->next_expected_peer() != from.rank;
  }
  from.sequential = from.due > 0 && sequential;
  from.not_next = from.due > 0 && not_next;
}

}  // namespace

void expect_bytes(const Peers& peers, const InFlightTable& in_flight, net::Transport& transport) {
  int now = 0, not_next = 0;
  for (const auto& from : peers) {
    if (from == nullptr || from->closed || from->rails.front()->in_place) continue;
    update_due(*from, in_flight);
    if (from->total_due >= kLargeDue) ++(from->not_next ? not_next : now);
  }
  const bool alone = now + not_next <= 1;
  const double all = not_next > 0 ? kSequentialShare : 1;
  const double share =
      alone ? 1 : std::max(kNotNextShare, (all - not_next * kNotNextShare) / std::max(now, 1));
  for (const auto& from : peers) {
    if (from == nullptr || from->closed || from->rails.front()->in_place) continue;
    // A peer that is not sending keeps its share for its next data.
    if (from->total_due >= kLargeDue && !(alone && from->sequential))
      from->window_share = from->not_next ? kNotNextShare : share;
    const std::size_t worth = std::min(from->due / kDueDivisor, kMaxExpected) / from->rails.size();
    for (const auto& source : from->rails) {
      if (!source->accepts_input()) continue;
      transport.expect(source->stream, worth, from->window_share);
    }
  }
}

}  // namespace gradwire::engine
