#include <algorithm>
#include <numeric>

#include <gtest/gtest.h>

#include "tests/engine/simulation/sim_collective.h"

namespace gradwire::test {
namespace {

ExecutorOptions small_options() {
  ExecutorOptions options;
  options.limits = {.segment_bytes = 256, .eager_bytes = 512, .eager_budget = 2048};
  options.receive_buffer_bytes = 1024;
  return options;
}

/// Runs a case and checks every rank's result for correctness and for identity with the others'.
/// `rails`: of every host, each slower than the one before.
void run(const Case& c, const SimOptions& network, const ExecutorOptions& options, int rails = 1) {
  SCOPED_TRACE(c.describe());
  SimHost host;
  for (int i = 0; i < rails; ++i) host.rails.push_back({.bytes_per_second = 1e8 / (i + 1)});
  std::vector<int> host_of(static_cast<std::size_t>(c.ranks));
  std::iota(host_of.begin(), host_of.end(), 0);
  SimulatedJob job(std::vector<SimHost>(host_of.size(), host), host_of, network, options);
  std::vector<Memory> inputs;
  std::vector<Memory> outputs(static_cast<std::size_t>(c.ranks));
  std::vector<std::shared_ptr<Outcome>> outcomes;
  for (Rank r = 0; r < c.ranks; ++r) inputs.push_back(make_input(c, r, network.seed));
  const std::vector<Memory> before = inputs;
  for (Rank r = 0; r < c.ranks; ++r) {
    const auto i = static_cast<std::size_t>(r);
    outcomes.push_back(std::make_shared<Outcome>());
    job.executor(r).post(make_request(c, r, inputs[i], outputs[i], outcomes.back()), job.now());
  }
  const bool finished = job.run(Time(std::chrono::seconds(30)), [&] {
    return std::ranges::all_of(outcomes, [](const auto& o) { return o->done(); });
  });
  ASSERT_TRUE(finished);
  for (Rank r = 0; r < c.ranks; ++r) {
    const auto i = static_cast<std::size_t>(r);
    ASSERT_EQ(outcomes[i]->successes, 1) << outcomes[i]->last.message;
    expect_right(c, r, inputs, outputs[i]);
    EXPECT_EQ(inputs[i], before[i]) << "the input was written";
  }
}

TEST(SimulatedCollectives, EveryAlgorithmOnEveryNumberOfRanksAndRails) {
  std::uint64_t seed = 1;
  for (const Algorithm& algorithm : algorithm_catalogue()) {
    if (algorithm.collective == Collective::point_to_point) continue;
    for (int ranks = 1; ranks <= 9; ++ranks) {
      for (const std::size_t count : {0, 1, 7, 1000}) {
        Case c{.collective = algorithm.collective,
               .algorithm = std::string(algorithm.name),
               .ranks = ranks,
               .count = algorithm.collective == Collective::barrier ? 0 : count,
               .root = static_cast<Rank>(seed % static_cast<std::uint64_t>(ranks)),
               .in_place = seed % 2 == 0};
        const int rails = 1 + static_cast<int>(seed % 3);
        run(c, {.seed = seed++, .window_bytes = 4096, .short_io = true}, small_options(), rails);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(SimulatedCollectives, EveryTypeAndReduction) {
  std::uint64_t seed = 1;
  for (const DataType type : all_data_types()) {
    for (const ReduceOp op : all_reduce_ops()) {
      for (const std::string_view algorithm : algorithm_names(Collective::all_reduce)) {
        run({.algorithm = std::string(algorithm), .ranks = 5, .count = 333, .type = type, .op = op},
            {.seed = seed++, .short_io = true}, small_options());
      }
    }
  }
}

}  // namespace
}  // namespace gradwire::test
