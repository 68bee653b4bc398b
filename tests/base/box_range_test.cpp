#include "gradwire/base/box_range.h"

#include <algorithm>
#include <tuple>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/base/random.h"

namespace gradwire {

bool operator==(const SharedRun& a, const SharedRun& b) {
  return std::tie(a.in_first, a.in_second, a.count) == std::tie(b.in_first, b.in_second, b.count);
}

namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// The elements of a range, one by one, as indices of the flat tensor.
std::vector<std::int64_t> flat_indices(const BoxRange& range) {
  std::vector<std::int64_t> all{0};
  for (std::size_t d = 0; d < range.part.view.size(); ++d) {
    std::vector<std::int64_t> longer;
    for (const auto outer : all) {
      for (auto i = range.part.box.begin[d]; i < range.part.box.end[d]; ++i) {
        longer.push_back(outer * range.part.view[d] + i);
      }
    }
    all = std::move(longer);
  }
  return {all.begin() + range.begin, all.begin() + range.begin + range.count};
}

/// The result of shared_runs(), found element by element instead of by runs.
std::vector<std::pair<std::int64_t, std::int64_t>> shared_elements(const BoxRange& first,
                                                                   const BoxRange& second) {
  const auto a = flat_indices(first);
  const auto b = flat_indices(second);
  std::vector<std::pair<std::int64_t, std::int64_t>> shared;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const auto at = std::ranges::lower_bound(b, a[i]);
    if (at != b.end() && *at == a[i]) shared.emplace_back(i, at - b.begin());
  }
  return shared;
}

Shape random_view(Random& random, std::int64_t elements) {
  Shape view;
  for (const std::int64_t factor : {2, 3, 5, 7}) {
    while (elements % factor == 0) {
      elements /= factor;
      const bool merge = !view.empty() && random.below(2) == 0;
      if (merge) {
        view.back() *= factor;
      } else {
        view.push_back(factor);
      }
    }
  }
  return view;
}

BoxRange random_range(Random& random, std::int64_t elements) {
  BoxRange range{.part = {.view = random_view(random, elements), .box = {}}};
  for (const auto size : range.part.view) {
    const auto a = random.below(2) == 0 ? 0 : random.between(0, size);
    const auto b = random.below(2) == 0 ? size : random.between(0, size);
    range.part.box.begin.push_back(std::min(a, b));
    range.part.box.end.push_back(std::max(a, b));
  }
  const auto size = range.part.box.elements();
  range.begin = random.below(2) == 0 ? 0 : random.between(0, size);
  range.count =
      size - range.begin - (random.below(2) == 0 ? 0 : random.between(0, size - range.begin));
  return range;
}

TEST(BoxRange, SharedRunsAreTheElementsOfBoth) {
  Random random(11);
  std::size_t found = 0;
  for (int trial = 0; trial < 2000; ++trial) {
    const BoxRange first = random_range(random, 2 * 2 * 3 * 5);
    const BoxRange second = random_range(random, 2 * 2 * 3 * 5);
    std::vector<std::pair<std::int64_t, std::int64_t>> elements;
    for (const SharedRun& run : shared_runs(first, second)) {
      for (std::int64_t i = 0; i < run.count; ++i) {
        elements.emplace_back(run.in_first + i, run.in_second + i);
      }
    }
    ASSERT_EQ(elements, shared_elements(first, second)) << "trial " << trial;
    found += elements.size();
  }
  EXPECT_GT(found, 2000);
}

TEST(BoxRange, ConsecutiveElementsAreOneRun) {
  const BoxRange rows{{{8, 5}, {{2, 0}, {6, 5}}}, 0, 20};
  const BoxRange all{whole_part({40}), 0, 40};
  EXPECT_THAT(shared_runs(rows, all), ElementsAre(SharedRun{0, 10, 20}));
}

TEST(BoxRange, ColumnsAreOneRunARow) {
  const BoxRange columns{{{3, 4}, {{0, 2}, {3, 4}}}, 0, 6};
  const BoxRange all{whole_part({3, 4}), 0, 12};
  EXPECT_THAT(shared_runs(columns, all),
              ElementsAre(SharedRun{0, 2, 2}, SharedRun{2, 6, 2}, SharedRun{4, 10, 2}));
}

TEST(BoxRange, ScalarsAndEmptyBoxes) {
  const BoxRange scalar{whole_part({}), 0, 1};
  EXPECT_THAT(shared_runs(scalar, scalar), ElementsAre(SharedRun{0, 0, 1}));
  const BoxRange empty{{{3, 4}, {{1, 2}, {1, 4}}}, 0, 0};
  EXPECT_THAT(shared_runs(empty, {whole_part({12}), 0, 12}), IsEmpty());
}

}  // namespace
}  // namespace gradwire
