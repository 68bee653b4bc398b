#include "gradwire/recipe/stop_request.h"

#include <csignal>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/torch/thread_group.h"

namespace gradwire::test {
namespace {

using recipe::StopAgreement;
using std::chrono::milliseconds;

struct StepClock final : Clock {
  Time now() const override { return time; }
  Time time = {};
};

TEST(StopAgreement, AllRanksStopAfterTheSameStep) {
  constexpr int kRanks = 3;
  std::vector<int> stopped(kRanks);
  std::vector<std::uint64_t> asked(kRanks);
  run_on_threads(kRanks, [&](const ProcessGroup& group) {
    const auto rank = static_cast<std::size_t>(group->getRank());
    StepClock clock;
    int step = 0;
    StopAgreement agreement(group, clock, [&] { return rank == 1 && step >= 500 ? SIGTERM : 0; });
    int signal = 0;
    while (signal == 0) {
      clock.time += milliseconds(2 + static_cast<int>(rank));
      ++step;
      signal = agreement.after_step();
    }
    EXPECT_EQ(signal, SIGTERM);
    stopped[rank] = step;
    asked[rank] = group->getBackend(torch::kCPU)->getSequenceNumberForGroup();
  });
  EXPECT_EQ(stopped, std::vector<int>(kRanks, stopped[0]));
  // Within a second after step 500, of steps that take rank 0 2 ms.
  EXPECT_GE(stopped[0], 500);
  EXPECT_LE(stopped[0], 1100);
  EXPECT_LE(asked[0], 14u) << "the interval doubles up to 500 steps";
}

TEST(StopSignals, RemembersTheFirst) {
  const recipe::StopSignals signals;
  EXPECT_EQ(signals.received(), 0);
  std::raise(SIGUSR1);
  std::raise(SIGTERM);
  EXPECT_EQ(signals.received(), SIGUSR1);
}

}  // namespace
}  // namespace gradwire::test
