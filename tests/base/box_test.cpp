#include "gradwire/base/box.h"

#include <functional>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/base/error.h"
#include "gradwire/base/random.h"

namespace gradwire {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

/// All indices of a box, one by one: what the functions under test compute with boxes.
std::vector<Shape> indices(const Box& box) {
  std::vector<Shape> all;
  const std::function<void(Shape)> extend = [&](Shape index) {
    const std::size_t d = index.size();
    if (d == box.dimensions()) return all.push_back(index);
    for (std::int64_t i = box.begin[d]; i < box.end[d]; ++i) {
      Shape longer = index;
      longer.push_back(i);
      extend(longer);
    }
  };
  extend({});
  return all;
}

bool has(const Box& box, const Shape& index) {
  return box.contains({index, [&] {
                         Shape end = index;
                         for (auto& i : end) ++i;
                         return end;
                       }()});
}

Shape random_shape(Random& random) {
  Shape shape;
  const auto dimensions = random.below(4);
  for (std::uint64_t d = 0; d < dimensions; ++d) shape.push_back(random.between(0, 6));
  return shape;
}

Box random_box(Random& random, const Shape& shape) {
  Box box;
  for (const auto size : shape) {
    const auto a = random.between(0, size);
    const auto b = random.between(0, size);
    box.begin.push_back(std::min(a, b));
    box.end.push_back(std::max(a, b));
  }
  return box;
}

TEST(Box, CountsItsElements) {
  const Box box{{1, 2}, {4, 4}};
  EXPECT_THAT(box.shape(), ElementsAre(3, 2));
  EXPECT_EQ(box.elements(), 6);
  EXPECT_EQ(box.text(), "[1:4, 2:4]");
  EXPECT_EQ(Box{}.elements(), 1);  // A scalar.
  EXPECT_TRUE((Box{{2}, {2}}.empty()));
  EXPECT_EQ(relative_to(box, Box{{1, 1}, {5, 5}}), (Box{{0, 1}, {3, 3}}));
}

TEST(Box, IntersectionAndDifferenceHaveTheRightIndices) {
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const Shape shape = random_shape(random);
    const Box a = random_box(random, shape);
    const Box b = random_box(random, shape);
    std::map<Shape, int> covered;
    for (const auto& index : indices(intersection(a, b))) ++covered[index];
    for (const Box& part : difference(a, b)) {
      for (const auto& index : indices(part)) {
        ASSERT_FALSE(has(b, index));
        ++covered[index];
      }
    }
    const auto expected = indices(a);
    ASSERT_EQ(covered.size(), expected.size());
    for (const auto& index : expected) ASSERT_EQ(covered[index], 1);
    ASSERT_LE(difference(a, b).size(), 2 * shape.size() + 1);
  }
}

TEST(Division, IsAsEvenAsPossible) {
  const Division division = divided({10, 2}, 0, 4);
  EXPECT_THAT(division.boxes, ElementsAre(Box{{0, 0}, {3, 2}}, Box{{3, 0}, {6, 2}},
                                          Box{{6, 0}, {8, 2}}, Box{{8, 0}, {10, 2}}));
  EXPECT_TRUE(divided({2, 3}, 1, 5).is_partition());  // The last two boxes are empty.
  EXPECT_FALSE(replicated({2}, 2).is_partition());
  EXPECT_FALSE((Division{{3}, {{{0}, {1}}, {{2}, {3}}}}.is_partition()));
}

TEST(Division, CanCutTwoDimensions) {
  const Division division = divided({5, 3}, 0, 2, 1, 2);
  EXPECT_THAT(division.boxes, ElementsAre(Box{{0, 0}, {3, 2}}, Box{{0, 2}, {3, 3}},
                                          Box{{3, 0}, {5, 2}}, Box{{3, 2}, {5, 3}}));
}

TEST(Division, RefusesImpossibleDivisions) {
  EXPECT_THAT([] { divided({4}, 1, 2); },
              ThrowsMessage<Exception>(HasSubstr("dimension 1 of a tensor of 1 dimensions")));
  EXPECT_THAT([] { divided({4}, 0, 0); }, ThrowsMessage<Exception>(HasSubstr("into 0 parts")));
}

/// Random boxes for all but one rank, which has the whole tensor, so that nothing is missing.
Division random_division(Random& random, const Shape& shape, int ranks) {
  Division division{shape, {}};
  const auto whole = static_cast<int>(random.below(static_cast<std::uint64_t>(ranks)));
  for (int r = 0; r < ranks; ++r) {
    division.boxes.push_back(r == whole ? whole_box(shape) : random_box(random, shape));
  }
  return division;
}

TEST(BoxMessages, DeliverEveryElementOnce) {
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const Shape shape = random_shape(random);
    const auto from = random_division(random, shape, static_cast<int>(random.between(1, 4)));
    Division to{shape, {}};
    const auto receivers = random.between(1, 4);
    for (std::int64_t r = 0; r < receivers; ++r) to.boxes.push_back(random_box(random, shape));

    std::vector<std::map<Shape, int>> sender_of(to.boxes.size());
    for (const BoxMessage& message : box_messages(from, to)) {
      ASSERT_TRUE(from.boxes[static_cast<std::size_t>(message.from)].contains(message.box));
      for (const auto& index : indices(message.box)) {
        const auto [at, is_new] =
            sender_of[static_cast<std::size_t>(message.to)].emplace(index, message.from);
        ASSERT_TRUE(is_new) << "twice";
      }
    }
    for (std::size_t r = 0; r < to.boxes.size(); ++r) {
      ASSERT_EQ(sender_of[r].size(), static_cast<std::size_t>(to.boxes[r].elements()));
      for (const auto& [index, sender] : sender_of[r]) {
        ASSERT_TRUE(has(to.boxes[r], index));
        int expected = 0;
        while (!has(from.boxes[static_cast<std::size_t>(expected)], index)) ++expected;
        if (r < from.boxes.size() && has(from.boxes[r], index)) expected = static_cast<int>(r);
        ASSERT_EQ(sender, expected);
      }
    }
  }
}

TEST(BoxMessages, AreHalosBetweenStrips) {
  const Division strips = divided({6}, 0, 3);
  const Division with_halos{{6}, {{{0}, {3}}, {{1}, {5}}, {{3}, {6}}}};
  EXPECT_THAT(box_messages(strips, with_halos),
              ElementsAre(BoxMessage{0, 0, {{0}, {2}}}, BoxMessage{1, 0, {{2}, {3}}},
                          BoxMessage{1, 1, {{2}, {4}}}, BoxMessage{0, 1, {{1}, {2}}},
                          BoxMessage{2, 1, {{4}, {5}}}, BoxMessage{2, 2, {{4}, {6}}},
                          BoxMessage{1, 2, {{3}, {4}}}));
}

TEST(BoxMessages, RefuseWhatNoRankHas) {
  const Division from{{4}, {{{0}, {1}}, {{2}, {4}}}};
  EXPECT_THAT([&] { box_messages(from, replicated({4}, 2)); },
              ThrowsMessage<Exception>(HasSubstr("rank 0 needs [1:2] of a tensor of shape [4]")));
  EXPECT_THAT([&] { box_messages(from, replicated({5}, 2)); },
              ThrowsMessage<Exception>(HasSubstr("shape [4] into one of shape [5]")));
}

}  // namespace
}  // namespace gradwire
