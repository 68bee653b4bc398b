#include "gradwire/base/suggest.h"

#include <array>

#include <gtest/gtest.h>

namespace gradwire {
namespace {

constexpr std::array<std::string_view, 4> kNames{"ring", "direct", "tree", "recursive_doubling"};

TEST(EditDistance, CountsEdits) {
  EXPECT_EQ(edit_distance("", ""), 0u);
  EXPECT_EQ(edit_distance("", "ring"), 4u);
  EXPECT_EQ(edit_distance("ring", ""), 4u);
  EXPECT_EQ(edit_distance("ring", "ring"), 0u);
  EXPECT_EQ(edit_distance("rign", "ring"), 1u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
  EXPECT_EQ(edit_distance("bring", "ring"), 1u);
}

TEST(NearestName, FindsWhatWasMeant) {
  EXPECT_EQ(nearest_name("rign", kNames), "ring");
  EXPECT_EQ(nearest_name("recursive-doubling", kNames), "recursive_doubling");
  EXPECT_EQ(nearest_name("Tree", kNames), "tree");
  EXPECT_EQ(nearest_name("banana", kNames), std::nullopt);
  EXPECT_EQ(nearest_name("", kNames), std::nullopt);
  EXPECT_EQ(nearest_name("ring", {}), std::nullopt);
}

TEST(UnknownName, ListsAndSuggests) {
  EXPECT_EQ(unknown_name("algorithm", "rign", kNames),
            "unknown algorithm \"rign\" (did you mean \"ring\"?); known: ring, direct, tree, "
            "recursive_doubling");
  EXPECT_EQ(unknown_name("algorithm", "banana", kNames),
            "unknown algorithm \"banana\"; known: ring, direct, tree, recursive_doubling");
}

}  // namespace
}  // namespace gradwire
