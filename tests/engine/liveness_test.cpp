#include "gradwire/engine/links/liveness.h"

#include <gtest/gtest.h>

#include "gradwire/engine/executor.h"
#include "gradwire/net/sim/sim_network.h"
#include "tests/support/sim_collective.h"

namespace gradwire::test {
namespace {

/// A transport may report a stream as readable although no bytes arrived, as a safeguard
/// (expect()).
TEST(Liveness, APeerThatSaysNothingIsDeadThoughItsStreamIsSaidToBeReadable) {
  net::SimNetwork network(std::vector<net::SimPort>(2), {});
  const engine::ExecutorOptions options{.dead_peer_timeout = std::chrono::seconds(5)};
  engine::Executor executor(0, 2, options, network.endpoint(0), Time{});
  const Case c{.algorithm = "ring", .ranks = 2, .count = 10'000'000};
  Memory input = make_input(c, 0, 1);
  Memory output;
  auto outcome = std::make_shared<Outcome>();
  executor.post(make_request(c, 0, input, output, outcome), Time{});
  Time now{};
  for (; !outcome->done() && now < Time(std::chrono::seconds(8));
       now += std::chrono::milliseconds(4)) {
    executor.on_readable({1, 0}, now);
    if (now >= executor.next_timer()) executor.on_timer(now);
  }
  EXPECT_EQ(outcome->failures, 1);
  EXPECT_LT(now, Time(std::chrono::seconds(7)));
}

}  // namespace
}  // namespace gradwire::test
