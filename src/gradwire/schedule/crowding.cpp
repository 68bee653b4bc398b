#include "gradwire/schedule/crowding.h"

#include <algorithm>
#include <bit>
#include <set>

namespace gradwire {

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

double crowding_of(std::size_t streams) {
  constexpr std::size_t kQuiet = 2, kMost = 8;
  constexpr double kLoss = 0.004;
  const auto beyond = static_cast<double>(std::clamp(streams, kQuiet, kMost) - kQuiet);
  return 1 + kLoss * beyond * beyond;
}

}  // namespace gradwire
