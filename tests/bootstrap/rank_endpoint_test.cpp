#include "gradwire/bootstrap/mesh/rank_endpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/topology/machine.h"

namespace gradwire::bootstrap {
namespace {

using testing::ElementsAre;

RankEndpoint endpoint_on(const std::string& machine, int rails = 1) {
  RankEndpoint endpoint = {.host = "b", .machine = machine, .cores = 4, .shares_memory = true};
  for (int i = 0; i < rails; ++i) {
    const std::string host = "10.77." + std::to_string(i) + ".4";
    endpoint.rails.push_back({*net::SocketAddress::of(host, 41234), "gw" + std::to_string(i)});
  }
  return endpoint;
}

TEST(RankEndpoint, DescribesARankOverARail) {
  EXPECT_EQ(endpoint_on("m", 2).describe(3, 1), "rank 3 (host b, 10.77.1.4:41234 over gw1)");
  RankEndpoint nameless = endpoint_on("m");
  nameless.rails[0].interface.clear();
  EXPECT_EQ(nameless.describe(3), "rank 3 (host b, 10.77.0.4:41234)");
}

TEST(RankEndpoint, SurvivesAStore) {
  const RankEndpoint endpoint = endpoint_on("boot net:[1]", 3);
  const auto back = decode_rank_endpoint(encode(endpoint));
  ASSERT_TRUE(back);
  EXPECT_EQ(back->host, endpoint.host);
  EXPECT_EQ(back->machine, endpoint.machine);
  EXPECT_EQ(back->cores, endpoint.cores);
  EXPECT_EQ(back->shares_memory, endpoint.shares_memory);
  EXPECT_EQ(back->rails, endpoint.rails);
}

TEST(RankEndpoint, TheLargestFitsManyTimesIntoAValueOfAStore) {
  RankEndpoint endpoint = endpoint_on(std::string(80, 'm'));
  endpoint.host = std::string(64, 'h');
  endpoint.rails.assign(
      kMaxRails, {*net::SocketAddress::parse("[2001:db8:1111:2222:3333:4444:5555:6666]:65535"),
                  std::string(15, 'i')});
  EXPECT_LT(encode(endpoint).size(), 64u * 1024 / 32 * 3 / 4);  // It is escaped once more.
}

TEST(RankEndpoint, InvalidTextIsRefused) {
  for (const char* text :
       {"", "[]", "{}", R"({"rails":[]})", R"({"rails":{}})", R"({"rails":[{}]})",
        R"({"rails":[{"address":"10.0.0.1"}]})", R"({"rails":[{"address":7}]})"}) {
    EXPECT_FALSE(decode_rank_endpoint(text)) << text;
  }
  RankEndpoint many = endpoint_on("m");
  many.rails.resize(kMaxRails + 1, many.rails[0]);
  EXPECT_FALSE(decode_rank_endpoint(encode(many)));
}

TEST(RankEndpoint, CoresThatNoMachineHasAreNotKnown) {
  for (const char* cores : {"-1", "0", "4294967297", "18446744073709551615", "1e3", "null"}) {
    const auto endpoint = decode_rank_endpoint(std::string(R"({"cores":)") + cores +
                                               R"(,"rails":[{"address":"10.0.0.1:1"}]})");
    ASSERT_TRUE(endpoint) << cores;
    EXPECT_EQ(endpoint->cores, 0) << cores;
  }
}

TEST(SameMachine, UnknownMachinesDiffer) {
  EXPECT_TRUE(same_machine(endpoint_on("a"), endpoint_on("a")));
  EXPECT_FALSE(same_machine(endpoint_on("a"), endpoint_on("b")));
  EXPECT_FALSE(same_machine(endpoint_on(""), endpoint_on("")));
}

TEST(RailsBetween, IsTheSmallerNumberOrOneOnOneMachine) {
  EXPECT_EQ(rails_between(endpoint_on("a", 2), endpoint_on("b", 3)), 2);
  EXPECT_EQ(rails_between(endpoint_on("a", 3), endpoint_on("a", 3)), 1);
  EXPECT_EQ(rails_between(endpoint_on("", 3), endpoint_on("", 2)), 2);
}

TEST(MachineNumbers, AreGivenByTheLowestRank) {
  EXPECT_THAT(machine_numbers({endpoint_on("x"), endpoint_on("a"), endpoint_on("x"),
                               endpoint_on("b"), endpoint_on("a"), endpoint_on("")}),
              ElementsAre(0, 1, 0, 2, 1, 3));
  EXPECT_THAT(machine_numbers({endpoint_on(""), endpoint_on("")}), ElementsAre(0, 1));
}

TEST(MachineIdentity, IsTheSameForAllOfThisMachine) {
  EXPECT_FALSE(topology::machine_identity().empty());
  EXPECT_EQ(topology::machine_identity(), topology::machine_identity());
  EXPECT_GE(topology::machine_cores(), 1);
}

}  // namespace
}  // namespace gradwire::bootstrap
