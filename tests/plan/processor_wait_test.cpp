#include "gradwire/plan/simulate/processor_wait.h"

#include <vector>

#include <gtest/gtest.h>

#include "gradwire/schedule/catalogue.h"

namespace gradwire {
namespace {

constexpr std::size_t kBytes = 100'000'000;
constexpr int kHosts = 4;

/// Factor for a ring among four hosts on `kernels` separate machines with two cores each.
double wait(int kernels, double seconds) {
  std::vector<Host> hosts(kHosts);
  std::vector<int> host_of;
  for (int i = 0; i < kHosts; ++i) {
    hosts[static_cast<std::size_t>(i)].kernel = i % kernels;
    hosts[static_cast<std::size_t>(i)].cores = 2;
    host_of.push_back(i);
  }
  const Topology topology(hosts, host_of);
  const CollectiveSpec spec{.collective = Collective::all_reduce};
  const Schedule schedule = make_schedule(spec, "ring", topology).value();
  const ProgramSet programs(schedule);
  return processor_wait(programs, topology, ChunkLayout(schedule.chunks, kBytes, 1), seconds);
}

TEST(ProcessorWait, IsThereOnlyWhereHostsShareProcessors) {
  EXPECT_EQ(wait(kHosts, 1e-3), 1);
  EXPECT_GT(wait(1, 0.5), 1.01);
}

TEST(ProcessorWait, GrowsWithTheRate) {
  // Each host sends and receives 1.5 times the bytes: 0.12 s of work, 0.24 s for each of two cores.
  EXPECT_NEAR(wait(1, 0.48), 1 + 0.125 / 2, 1e-6);
  EXPECT_LT(wait(1, 1.26), 1.004);
  EXPECT_EQ(wait(1, 0.01), 1.5) << "no more than all of them";
}

}  // namespace
}  // namespace gradwire
