#include <tuple>

#include <gtest/gtest.h>

#include "gradwire/base/random.h"
#include "tests/support/local_job.h"
#include "tests/support/run_case.h"
#include "tests/support/sim_collective.h"
#include "tests/support/start_jobs.h"
#include "tests/support/topologies.h"

/// Runs every algorithm over TCP, TLS and shared memory, on every topology. Ranks are threads with
/// real sockets. Each case runs twice: with exact sums, whose results must be true; and with sums
/// that round, whose results must equal those over simulated streams bit for bit. Each rank must
/// send exactly the bytes of its schedule.
namespace gradwire::test {
namespace {

constexpr std::uint64_t kSeed = 11;

/// Elements of a message that several rails share, even where it is cut in parts for 7 ranks.
constexpr std::size_t kManySegments = 40'001;

CaseResult run_on_all(const Case& c, const std::vector<Memory>& inputs, LocalJob& job) {
  const auto ranks = static_cast<std::size_t>(c.ranks);
  CaseResult result{std::vector<Memory>(ranks), std::vector<std::size_t>(ranks)};
  const auto errors = job.run([&](Rank rank, Communicator& communicator) {
    const auto i = static_cast<std::size_t>(rank);
    const std::size_t before = communicator.payload_bytes_sent();
    result.outputs[i] = run_case(c, inputs[i], rank, communicator, {.algorithm = c.algorithm});
    result.payload_bytes[i] = communicator.payload_bytes_sent() - before;
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
  return result;
}

void expect_as_simulated(const Case& c, LocalJob& job) {
  const std::vector<Memory> inputs = make_inputs(c, kSeed);
  const CaseResult real = run_on_all(c, inputs, job);
  const CaseResult simulated = simulate(c, inputs, {});
  EXPECT_EQ(real.payload_bytes, scheduled_bytes(c));
  EXPECT_EQ(real.payload_bytes, simulated.payload_bytes);
  for (Rank r = 0; r < c.ranks; ++r) {
    const auto i = static_cast<std::size_t>(r);
    if (c.ends_at_root() && r != c.root) continue;
    EXPECT_EQ(real.outputs[i], simulated.outputs[i]) << "of the real and the simulated rank " << r;
    if (c.collective == schedule::Collective::all_reduce) {
      EXPECT_EQ(real.outputs[i], real.outputs[0]) << "of ranks " << r << " and 0";
    }
  }
}

void expect_true(const Case& c, LocalJob& job) {
  const std::vector<Memory> inputs = make_inputs(c, kSeed);
  const CaseResult real = run_on_all(c, inputs, job);
  for (Rank r = 0; r < c.ranks; ++r) {
    expect_right(c, r, inputs, real.outputs[static_cast<std::size_t>(r)]);
  }
}

void check(Case c, LocalJob& job) {
  SCOPED_TRACE(c.describe());
  expect_true(c, job);
  c.rough = true;
  expect_as_simulated(c, job);
}

void check_algorithms(const topology::Topology& topology, const std::vector<std::size_t>& counts,
                      LocalJob& job) {
  for (const schedule::Algorithm& algorithm : schedule::algorithm_catalogue()) {
    if (algorithm.collective == schedule::Collective::point_to_point) continue;
    for (const std::size_t count : counts) {
      check({.collective = algorithm.collective,
             .algorithm = std::string(algorithm.name),
             .ranks = topology.ranks(),
             .count = algorithm.collective == schedule::Collective::barrier ? 0 : count,
             .root = static_cast<Rank>(topology.ranks() - 1),
             .topology = topology},
            job);
      if (testing::Test::HasFailure()) return;
    }
  }
}

/// Pings are so rare that none hides a lost wake-up: the operation then fails by its timeout.
CommunicatorOptions rare_pings() {
  return {.operation_timeout = std::chrono::seconds(30),
          .dead_peer_timeout = std::chrono::hours(1)};
}

class Conformance : public testing::TestWithParam<std::tuple<Wire, NamedTopology>> {
 protected:
  Wire wire() const { return std::get<0>(GetParam()); }
  const topology::Topology& topology() const { return std::get<1>(GetParam()).topology; }
  LocalNetwork network() const { return {.wire = wire(), .topology = topology()}; }
};

TEST_P(Conformance, EveryAlgorithm) {
  LocalJob job(topology().ranks(), rare_pings(), network());
  check_algorithms(topology(), {1021, kManySegments}, job);
}

std::vector<float> message(Rank from, Rank to) {
  Random random(static_cast<std::uint64_t>(from) * 1000 + static_cast<std::uint64_t>(to));
  std::vector<float> values(kManySegments);
  for (float& value : values) value = static_cast<float>(random.unit());
  return values;
}

/// Sends a message to every other rank and receives one from each, all at the same time.
void exchange_messages(Rank rank, Communicator& communicator) {
  std::vector<std::vector<float>> sent, received;
  std::vector<Work> works;
  for (Rank other = 0; other < communicator.size(); ++other) {
    if (other == rank) continue;
    sent.push_back(message(rank, other));
    received.emplace_back(kManySegments);
    // The elements of an inner vector stay where they are when the outer one grows.
    works.push_back(communicator.send(lend(sent.back()), other));
    works.push_back(communicator.recv(lend(received.back()), other));
  }
  for (Work& work : works) work.wait();
  auto got = received.begin();
  for (Rank other = 0; other < communicator.size(); ++other) {
    if (other == rank) continue;
    EXPECT_EQ(*got++, message(other, rank)) << "from " << other << " to " << rank;
  }
}

TEST_P(Conformance, MessagesBetweenAllPairs) {
  LocalJob job(topology().ranks(), rare_pings(), network());
  const auto errors = job.run([](Rank rank, Communicator& communicator) {
    const std::size_t before = communicator.payload_bytes_sent();
    exchange_messages(rank, communicator);
    const auto others = static_cast<std::size_t>(communicator.size() - 1);
    EXPECT_EQ(communicator.payload_bytes_sent() - before, others * kManySegments * sizeof(float));
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

/// The streams between two ranks, as the network has them.
void expect_streams(const LocalNetwork& network, Rank a, Rank b, const net::Transport& transport) {
  const topology::Topology& topology = *network.topology;
  const auto rails = [&](Rank rank) {
    return static_cast<int>(topology.host(topology.host_of(rank)).rails.size());
  };
  const bool together = topology.same_host(a, b);
  const int streams = together ? 1 : std::min(rails(a), rails(b));
  const bool shares_memory = together && network.wire == Wire::shm;
  const bool tls_guards = network.wire == Wire::tls && streams == 1;
  EXPECT_EQ(transport.rails(b), streams);
  EXPECT_EQ(transport.reads_in_place({b, 0}), shares_memory);
  EXPECT_EQ(transport.needs_checksums({b, 0}), !shares_memory && !tls_guards);
}

TEST_P(Conformance, TheStreamsAreThoseToBeTested) {
  const int ranks = topology().ranks();
  if (ranks == 1) return;  // A world of one has no streams.
  const ReservedPort port;
  const auto meshes = connect_all(local_jobs(ranks, network(), port.number()));
  for (Rank a = 0; a < ranks; ++a) {
    const auto& mesh = meshes[static_cast<std::size_t>(a)];
    ASSERT_TRUE(mesh) << mesh.error().message;
    for (Rank b = 0; b < ranks; ++b) {
      if (a != b) expect_streams(network(), a, b, *mesh->transport);
    }
  }
}

const auto kWires = testing::Values(Wire::tcp, Wire::tls, Wire::shm);

std::string name_of_given(const testing::TestParamInfo<Conformance::ParamType>& given) {
  return name_of(std::get<0>(given.param)) + "_" + std::get<1>(given.param).name;
}

INSTANTIATE_TEST_SUITE_P(Over, Conformance,
                         testing::Combine(kWires, testing::ValuesIn(all_topologies())),
                         name_of_given);

/// The tests that need no more than one topology.
class ConformanceOfWires : public testing::TestWithParam<Wire> {
 protected:
  const topology::Topology topology_ = mixed_topology().topology;
  LocalJob job_{topology_.ranks(), rare_pings(), {.wire = GetParam(), .topology = topology_}};
};

TEST_P(ConformanceOfWires, EveryAlgorithmAndSize) {
  const std::size_t above_eager = CommunicatorOptions().eager_bytes / sizeof(float) + 1;
  const std::size_t above_segment = CommunicatorOptions().segment_bytes / sizeof(float) + 1;
  check_algorithms(topology_, {0, 1, 3, above_eager, above_segment, 1 << 18}, job_);
}

TEST_P(ConformanceOfWires, EveryTypeAndReduction) {
  for (const DataType type : all_data_types()) {
    for (const ReduceOp op : all_reduce_ops()) {
      for (const std::string_view algorithm :
           schedule::algorithm_names(schedule::Collective::all_reduce)) {
        check({.algorithm = std::string(algorithm),
               .ranks = topology_.ranks(),
               .count = 257,
               .type = type,
               .op = op,
               .topology = topology_},
              job_);
        if (HasFailure()) return;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Over, ConformanceOfWires, kWires,
                         [](const auto& given) { return name_of(given.param); });

TEST(ConformanceTopologies, SuitEveryAlgorithm) {
  for (const schedule::Algorithm& algorithm : schedule::algorithm_catalogue()) {
    EXPECT_TRUE(std::ranges::any_of(all_topologies(), [&](const NamedTopology& named) {
      return algorithm.suits == nullptr || algorithm.suits(named.topology);
    })) << algorithm.name;
  }
}

}  // namespace
}  // namespace gradwire::test
