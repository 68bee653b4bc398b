#include "gradwire/bootstrap/rank_place.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/topology/machine.h"

namespace gradwire {
namespace {

using testing::ElementsAre;

RankPlace place_on(const std::string& machine, int rails = 1) {
  RankPlace place = {.host = "b", .machine = machine, .cores = 4, .shares_memory = true};
  for (int i = 0; i < rails; ++i) {
    const std::string host = "10.77." + std::to_string(i) + ".4";
    place.rails.push_back({*SocketAddress::of(host, 41234), "gw" + std::to_string(i)});
  }
  return place;
}

TEST(RankPlace, DescribesARankOverARail) {
  EXPECT_EQ(place_on("m", 2).describe(3, 1), "rank 3 (host b, 10.77.1.4:41234 over gw1)");
  RankPlace nameless = place_on("m");
  nameless.rails[0].interface.clear();
  EXPECT_EQ(nameless.describe(3), "rank 3 (host b, 10.77.0.4:41234)");
}

TEST(RankPlace, SurvivesAStore) {
  const RankPlace place = place_on("boot net:[1]", 3);
  const auto back = decode_rank_place(encode(place));
  ASSERT_TRUE(back);
  EXPECT_EQ(back->host, place.host);
  EXPECT_EQ(back->machine, place.machine);
  EXPECT_EQ(back->cores, place.cores);
  EXPECT_EQ(back->shares_memory, place.shares_memory);
  EXPECT_EQ(back->rails, place.rails);
}

TEST(RankPlace, TheLargestFitsManyTimesIntoAValueOfAStore) {
  RankPlace place = place_on(std::string(80, 'm'));
  place.host = std::string(64, 'h');
  place.rails.assign(kMaxRails,
                     {*SocketAddress::parse("[2001:db8:1111:2222:3333:4444:5555:6666]:65535"),
                      std::string(15, 'i')});
  EXPECT_LT(encode(place).size(), 64u * 1024 / 32 * 3 / 4);  // It is escaped once more.
}

TEST(RankPlace, NonsenseIsNone) {
  for (const char* text :
       {"", "[]", "{}", R"({"rails":[]})", R"({"rails":{}})", R"({"rails":[{}]})",
        R"({"rails":[{"address":"10.0.0.1"}]})", R"({"rails":[{"address":7}]})"}) {
    EXPECT_FALSE(decode_rank_place(text)) << text;
  }
  RankPlace many = place_on("m");
  many.rails.resize(kMaxRails + 1, many.rails[0]);
  EXPECT_FALSE(decode_rank_place(encode(many)));
}

TEST(RankPlace, CoresThatNoMachineHasAreNotKnown) {
  for (const char* cores : {"-1", "0", "4294967297", "18446744073709551615", "1e3", "null"}) {
    const auto place = decode_rank_place(std::string(R"({"cores":)") + cores +
                                         R"(,"rails":[{"address":"10.0.0.1:1"}]})");
    ASSERT_TRUE(place) << cores;
    EXPECT_EQ(place->cores, 0) << cores;
  }
}

TEST(SameMachine, AnUnknownMachineIsNobodys) {
  EXPECT_TRUE(same_machine(place_on("a"), place_on("a")));
  EXPECT_FALSE(same_machine(place_on("a"), place_on("b")));
  EXPECT_FALSE(same_machine(place_on(""), place_on("")));
}

TEST(RailsBetween, IsTheSmallerNumberOrOneOnOneMachine) {
  EXPECT_EQ(rails_between(place_on("a", 2), place_on("b", 3)), 2);
  EXPECT_EQ(rails_between(place_on("a", 3), place_on("a", 3)), 1);
  EXPECT_EQ(rails_between(place_on("", 3), place_on("", 2)), 2);
}

TEST(MachineNumbers, AreGivenByTheLowestRank) {
  EXPECT_THAT(machine_numbers({place_on("x"), place_on("a"), place_on("x"), place_on("b"),
                               place_on("a"), place_on("")}),
              ElementsAre(0, 1, 0, 2, 1, 3));
  EXPECT_THAT(machine_numbers({place_on(""), place_on("")}), ElementsAre(0, 1));
}

TEST(MachineIdentity, IsTheSameForAllOfThisMachine) {
  EXPECT_FALSE(machine_identity().empty());
  EXPECT_EQ(machine_identity(), machine_identity());
  EXPECT_GE(machine_cores(), 1);
}

}  // namespace
}  // namespace gradwire
