#include "tests/bootstrap/simulation/start_scenario.h"

#include <array>

#include "gradwire/base/random.h"

namespace gradwire::test {

std::string_view name_of(StartFault fault) {
  // By number.
  constexpr std::array<std::string_view, kStartFaults> kNames = {"none",
                                                                 "pieces",
                                                                 "refused",
                                                                 "reset_once",
                                                                 "resets",
                                                                 "delays",
                                                                 "restart",
                                                                 "death",
                                                                 "freeze",
                                                                 "late_rank_0",
                                                                 "missing_rank",
                                                                 "duplicate_rank",
                                                                 "wrong_secret",
                                                                 "other_world_size",
                                                                 "other_job",
                                                                 "silent_stranger",
                                                                 "garbage_stranger"};
  return kNames[static_cast<std::size_t>(fault)];
}

StartScenario draw_start(std::uint64_t seed) {
  Random random(seed);
  StartScenario drawn{.seed = seed};
  drawn.fault = static_cast<StartFault>(random.below(kStartFaults));
  drawn.world_size = static_cast<int>(random.between(2, 5));
  drawn.timeout = std::chrono::seconds(random.between(4, 12));
  drawn.victim = static_cast<Rank>(random.below(static_cast<std::uint64_t>(drawn.world_size)));
  // A rank sends about 15 messages, and rank 0 as many to each, as its server.
  const bool one_rank = drawn.fault == StartFault::restart || drawn.fault == StartFault::death ||
                        drawn.fault == StartFault::freeze;
  const std::uint64_t messages = one_rank && drawn.victim != 0 ? 20 : 20 * drawn.world_size;
  drawn.message = 1 + random.below(messages);
  drawn.delay = Duration(random.between(0, drawn.timeout.count() * 3 / 2));
  return drawn;
}

}  // namespace gradwire::test
