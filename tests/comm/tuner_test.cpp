#include "gradwire/comm/tuner.h"

#include <gtest/gtest.h>

namespace gradwire {
namespace {

TEST(Tuner, SmallMessagesTakeFewHopsAndLargeOnesLittleBandwidth) {
  for (const int ranks : {4, 8, 16}) {
    Tuner tuner(Tuner::assumed(ranks));
    const std::string small = tuner.choose({.collective = Collective::all_reduce}, 4);
    EXPECT_TRUE(small == "recursive_doubling" || small == "exchange") << small << " " << ranks;
    const std::string large = tuner.choose({.collective = Collective::all_reduce}, 100'000'000);
    EXPECT_TRUE(large == "ring" || large == "direct") << large;
  }
}

TEST(Tuner, ChoosesForEveryCollectiveAndSize) {
  Tuner tuner(Tuner::assumed(5));
  for (const Collective collective :
       {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter,
        Collective::broadcast, Collective::barrier}) {
    for (std::size_t bytes = 0; bytes < 1u << 28; bytes = bytes * 3 + 1) {
      EXPECT_FALSE(tuner.choose({.collective = collective}, bytes).empty());
    }
  }
}

TEST(Tuner, HostsThatShareTheirProcessorsSendFewMessages) {
  const Link link{.latency = std::chrono::microseconds(20)};
  std::vector<Host> hosts(4, Host{.rails = {link}, .cores = 2});
  const std::vector<int> host_of{0, 1, 2, 3};
  EXPECT_EQ(Tuner(Topology(hosts, host_of)).choose({.collective = Collective::all_reduce}, 4),
            "exchange");
  for (Host& host : hosts) host.kernel = 0;
  EXPECT_EQ(Tuner(Topology(hosts, host_of)).choose({.collective = Collective::all_reduce}, 4),
            "recursive_doubling");
}

TEST(Tuner, AWorldOfOneHasAChoiceToo) {
  Tuner tuner(Tuner::assumed(1));
  EXPECT_FALSE(tuner.choose({.collective = Collective::all_reduce}, 1000).empty());
}

}  // namespace
}  // namespace gradwire
