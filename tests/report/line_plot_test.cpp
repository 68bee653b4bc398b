#include "gradwire/report/line_plot.h"

#include <algorithm>
#include <regex>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gradwire::report {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

LinePlot two_lines() {
  return {.title = "all_reduce on <4> ranks",
          .y_title = "busbw (Gb/s)",
          .lines = {{"gradwire", {4, 1024, 1048576}, {0.1, 2, 8}}, {"gloo", {4, 1048576}, {0, 4}}},
          .limit = 10,
          .limit_name = "10 Gb/s"};
}

struct Point {
  double x, y;
};

/// Returns the points of each polyline.
std::vector<std::vector<Point>> curves(const std::string& svg) {
  std::vector<std::vector<Point>> result;
  const std::regex line("points=\"([^\"]*)\""), point("([0-9.]+),([0-9.]+)");
  for (std::sregex_iterator l(svg.begin(), svg.end(), line), end; l != end; ++l) {
    result.emplace_back();
    const std::string points = (*l)[1];
    for (std::sregex_iterator p(points.begin(), points.end(), point); p != end; ++p)
      result.back().push_back({std::stod((*p)[1]), std::stod((*p)[2])});
  }
  return result;
}

TEST(LinePlot, NamesEverythingAndEscapesIt) {
  const std::string svg = to_svg(two_lines());
  EXPECT_THAT(svg, AllOf(StartsWith("<svg "), EndsWith("</svg>\n"), HasSubstr(">gradwire<"),
                         HasSubstr(">gloo<"), HasSubstr("on &lt;4&gt; ranks"),
                         HasSubstr(">10 Gb/s<"), HasSubstr(">busbw (Gb/s)<"), HasSubstr(">1 M<")));
}

TEST(LinePlot, PutsPointsWhereTheyBelong) {
  const auto drawn = curves(to_svg(two_lines()));
  ASSERT_EQ(drawn.size(), 2u);
  ASSERT_EQ(drawn[0].size(), 3u);
  ASSERT_EQ(drawn[1].size(), 2u);
  const double left = drawn[0][0].x, middle = drawn[0][1].x, right = drawn[0][2].x;
  // On the logarithmic scale: 2^2 to 2^20.
  EXPECT_NEAR((middle - left) / (right - left), 8.0 / 18, 1e-3);
  EXPECT_EQ(drawn[1][0].x, left);
  EXPECT_EQ(drawn[1][1].x, right);
  const double zero = drawn[1][0].y;
  EXPECT_NEAR((zero - drawn[0][2].y) / (zero - drawn[1][1].y), 8.0 / 4, 1e-2);
}

TEST(LinePlot, TheLimitLiesAboveWhatStaysBelowIt) {
  const std::string svg = to_svg(two_lines());
  std::smatch dashed;
  ASSERT_TRUE(std::regex_search(svg, dashed, std::regex(R"(M70 ([0-9.]+)h\d+" stroke="#444")")));
  EXPECT_LT(std::stod(dashed[1]), curves(svg)[0][2].y);
  LinePlot without = two_lines();
  without.limit = 0;
  EXPECT_THAT(to_svg(without), Not(HasSubstr("dasharray")));
}

TEST(LinePlot, OnePointOrNoneIsAPictureToo) {
  EXPECT_THAT(to_svg({.title = "empty"}), AllOf(HasSubstr("</svg>"), Not(HasSubstr("nan"))));
  const std::string svg = to_svg({.title = "one", .lines = {{"a", {64}, {0}}}});
  EXPECT_THAT(svg, AllOf(Not(HasSubstr("nan")), Not(HasSubstr("inf"))));
}

}  // namespace
}  // namespace gradwire::report
