#include <gtest/gtest.h>

#include "tests/support/sim_collective.h"
#include "tests/support/topologies.h"

namespace gradwire::test {
namespace {

engine::ExecutorOptions small_options() {
  engine::ExecutorOptions options;
  options.limits = {.segment_bytes = 256, .eager_bytes = 512, .eager_credit = 2048};
  options.receive_buffer_bytes = 1024;
  return options;
}

/// One rank a host, each with `rails` rails of which each is slower than the one before.
topology::Topology separate_hosts(int ranks, int rails) {
  topology::Host host{.name = "", .rails = {}};
  for (int i = 1; i <= rails; ++i) host.rails.push_back({.bytes_per_second = 1e8 / i});
  std::vector<int> host_of;
  for (Rank rank = 0; rank < ranks; ++rank) host_of.push_back(rank);
  return topology::Topology(std::vector<topology::Host>(host_of.size(), host), host_of);
}

/// Runs a case and checks every rank's result against the truth, and what it sends against the
/// schedule.
void run(const Case& c, const net::SimOptions& network, const engine::ExecutorOptions& options) {
  SCOPED_TRACE(c.describe());
  const std::vector<Memory> inputs = make_inputs(c, network.seed);
  const CaseResult result = simulate(c, inputs, network, options);
  EXPECT_EQ(result.payload_bytes, scheduled_bytes(c));
  for (Rank r = 0; r < c.ranks; ++r) {
    expect_right(c, r, inputs, result.outputs[static_cast<std::size_t>(r)]);
  }
}

/// Runs all algorithms, the i-th run with seed `seed` + i.
void run_algorithms(const topology::Topology& topology, const std::vector<std::size_t>& counts,
                    std::uint64_t& seed) {
  const int ranks = topology.ranks();
  for (const schedule::Algorithm& algorithm : schedule::algorithm_catalogue()) {
    if (algorithm.collective == schedule::Collective::point_to_point) continue;
    for (const std::size_t count : counts) {
      run({.collective = algorithm.collective,
           .algorithm = std::string(algorithm.name),
           .ranks = ranks,
           .count = algorithm.collective == schedule::Collective::barrier ? 0 : count,
           .root = static_cast<Rank>(seed % static_cast<std::uint64_t>(ranks)),
           .in_place = seed % 2 == 0,
           .topology = topology},
          {.seed = seed, .window_bytes = 4096, .short_io = true}, small_options());
      ++seed;
    }
  }
}

TEST(SimulatedCollectives, EveryAlgorithmOnEveryNumberOfRanksAndRails) {
  std::uint64_t seed = 1;
  for (int ranks = 1; ranks <= 9; ++ranks) {
    for (int rails = 1; rails <= 3; ++rails) {
      run_algorithms(separate_hosts(ranks, rails), {0, 1, 7, 1000}, seed);
      if (HasFailure()) return;
    }
  }
}

class SimulatedTopologies : public testing::TestWithParam<NamedTopology> {};

TEST_P(SimulatedTopologies, EveryAlgorithm) {
  std::uint64_t seed = 1;
  run_algorithms(GetParam().topology, {0, 1, 3, 1021}, seed);
}

INSTANTIATE_TEST_SUITE_P(On, SimulatedTopologies, testing::ValuesIn(all_topologies()),
                         [](const auto& given) { return given.param.name; });

TEST(SimulatedCollectives, EveryTypeAndReduction) {
  std::uint64_t seed = 1;
  const topology::Topology mixed = mixed_topology().topology;
  for (const DataType type : all_data_types()) {
    for (const ReduceOp op : all_reduce_ops()) {
      for (const std::string_view algorithm :
           schedule::algorithm_names(schedule::Collective::all_reduce)) {
        run({.algorithm = std::string(algorithm),
             .ranks = mixed.ranks(),
             .count = 333,
             .type = type,
             .op = op,
             .topology = mixed},
            {.seed = seed++, .short_io = true}, small_options());
      }
    }
  }
}

}  // namespace
}  // namespace gradwire::test
