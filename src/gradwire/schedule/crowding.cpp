#include "gradwire/schedule/crowding.h"

#include <algorithm>
#include <bit>
#include <set>

namespace gradwire {

namespace {

/// How many other ranks count, for the rank for which most do.
std::size_t others_of(const ProgramSet& programs, const std::function<bool(Rank, Rank)>& counts) {
  std::size_t most = 0;
  for (Rank rank = 0; rank < programs.ranks(); ++rank) {
    std::size_t others = 0;
    for (Rank other = 0; other < programs.ranks(); ++other) {
      others += other != rank && counts(rank, other) ? 1 : 0;
    }
    most = std::max(most, others);
  }
  return most;
}

}  // namespace

std::size_t senders_that_meet(const ProgramSet& programs,
                              const std::function<bool(Rank, Rank)>& counts) {
  const auto rounds =
      static_cast<std::size_t>(std::bit_width(static_cast<unsigned>(programs.ranks() - 1)));
  std::size_t most = 0;
  for (Rank rank = 0; rank < programs.ranks(); ++rank) {
    std::set<Rank> senders;
    for (const Op& op : programs.program(rank).ops) {
      if (receives(op) && counts(rank, op.peer)) senders.insert(op.peer);
    }
    most = std::max(most, senders.size());
  }
  return most > rounds ? most : 0;
}

double crowding(const ProgramSet& programs, const std::function<bool(Rank, Rank)>& counts) {
  constexpr std::size_t kQuiet = 2, kMost = 8;
  constexpr double kLossOfSome = 0.065, kLossOfAll = 0.004;
  const std::size_t streams = senders_that_meet(programs, counts);
  const auto beyond = static_cast<double>(std::clamp(streams, kQuiet, kMost) - kQuiet);
  if (streams < others_of(programs, counts)) return 1 + kLossOfSome * beyond;
  return 1 + kLossOfAll * beyond * beyond;
}

}  // namespace gradwire
