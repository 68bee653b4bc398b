#include "gradwire/schedule/draw/drawing.h"

#include <chrono>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/schedule/algorithms/algorithms.h"
#include "gradwire/schedule/catalogue.h"

namespace gradwire::schedule {
namespace {

using std::chrono::microseconds;
using testing::HasSubstr;

const topology::Link kLink{.latency = microseconds(50), .bytes_per_second = 1e9};

Drawing drawing_of_ring() {
  const topology::Topology topology = topology::Topology::uniform(3, kLink);
  const ScheduleCost cost(ring_all_reduce(topology));
  // Three chunks of 10,000 bytes, 10 us each.
  return drawing_of(cost, cost.estimate(topology, ChunkLayout(3, 7500, 4)));
}

std::size_t occurrences(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(Drawing, HasAnEventForEveryOp) {
  const Drawing drawing = drawing_of_ring();
  EXPECT_EQ(drawing.title, "ring all_reduce of 3 ranks: 240 us");
  ASSERT_EQ(drawing.events.size(), 3u * 8u);
  const TimedEvent& first = drawing.events[0];
  EXPECT_EQ(first.kind, OpKind::send);
  EXPECT_EQ(first.label, "c0>1");
  EXPECT_EQ(first.begin, Duration::zero());
  EXPECT_EQ(first.end, microseconds(10));
  const TimedEvent& second = drawing.events[1];
  EXPECT_EQ(second.label, "c2<+2");
  EXPECT_EQ(second.chunk, 2u);
  EXPECT_EQ(second.begin, microseconds(50));
  EXPECT_EQ(second.end, microseconds(60));
}

TEST(Drawing, IsATableInText) {
  EXPECT_EQ(draw_text(drawing_of_ring()),
            "ring all_reduce of 3 ranks: 240 us\n"
            "\n"
            "  time  rank 0      rank 1      rank 2\n"
            "  0 ns  c0>1        c1>2        c2>0\n"
            " 60 us  c2<+2 c2>1  c0<+0 c0>2  c1<+1 c1>0\n"
            "120 us  c1<+2 c1>1  c2<+0 c2>2  c0<+1 c0>0\n"
            "180 us  c0<2 c0>1   c1<0 c1>2   c2<1 c2>0\n"
            "240 us  c2<2        c0<0        c1<1\n");
}

TEST(Drawing, IsAPictureInSvg) {
  const std::string svg = draw_svg(drawing_of_ring());
  EXPECT_THAT(svg, testing::StartsWith("<svg "));
  EXPECT_THAT(svg, testing::EndsWith("</svg>\n"));
  for (const char* text : {">rank 0<", ">rank 2<", ">ring all_reduce of 3 ranks: 240 us<"}) {
    EXPECT_THAT(svg, HasSubstr(text));
  }
  EXPECT_EQ(occurrences(svg, "<polygon"), 12u);         // An arrowhead for each message.
  EXPECT_EQ(occurrences(svg, "<rect"), 1u + 3u + 24u);  // Background, legend, sends and receives.
  EXPECT_EQ(occurrences(svg, "<g "), occurrences(svg, "</g>"));
  EXPECT_EQ(occurrences(svg, "<text"), occurrences(svg, "</text>"));
}

TEST(Drawing, EscapesWhatXmlCannotHold) {
  const Drawing drawing{.title = "a<b & \"c\"", .ranks = 1};
  EXPECT_THAT(draw_svg(drawing), HasSubstr(">a&lt;b &amp; &quot;c&quot;<"));
}

TEST(Drawing, TakesEventsOfAnyOrigin) {
  // The events of a measured run are unordered, with the receiver's clock slightly ahead.
  Drawing drawing{.title = "measured", .ranks = 2, .chunks = 1};
  drawing.events.push_back({.rank = 1,
                            .op = 0,
                            .kind = OpKind::recv,
                            .peer = 0,
                            .begin = microseconds(5),
                            .end = microseconds(30),
                            .label = "c0<0"});
  drawing.events.push_back({.rank = 0,
                            .op = 0,
                            .kind = OpKind::send,
                            .peer = 1,
                            .begin = microseconds(10),
                            .end = microseconds(20),
                            .label = "c0>1"});
  EXPECT_EQ(draw_text(drawing),
            "measured\n\n time  rank 0  rank 1\n10 us  c0>1\n30 us          c0<0\n");
  EXPECT_EQ(occurrences(draw_svg(drawing), "<polygon"), 1u);
}

TEST(Drawing, WorksForEveryAlgorithm) {
  for (const Algorithm& algorithm : algorithm_catalogue()) {
    for (int ranks : {1, 2, 5}) {
      const topology::Topology topology = topology::Topology::uniform(ranks, kLink);
      const Schedule schedule = algorithm.make(topology, {algorithm.collective, 0, ranks - 1});
      const ScheduleCost cost(schedule);
      const Drawing drawing =
          drawing_of(cost, cost.estimate(topology, ChunkLayout(schedule.chunks, 1000, 4)));
      EXPECT_EQ(drawing.events.size(), cost.programs().size());
      EXPECT_THAT(draw_text(drawing), HasSubstr("rank 0"));
      EXPECT_THAT(draw_svg(drawing), testing::EndsWith("</svg>\n"));
    }
  }
}

TEST(Label, NamesRanksOwnPartByItsPlaceInTheWhole) {
  const topology::Topology topology = topology::Topology::uniform(3);
  const Schedule gather = direct_all_gather(topology);
  const Program gathering = gather.program(2);
  EXPECT_EQ(label_of(gather, gathering, 2, gathering.ops[0]), "c2=");
  const Schedule scatter = direct_reduce_scatter(topology);
  const Program scattering = scatter.program(1);
  EXPECT_EQ(label_of(scatter, scattering, 1, scattering.ops.back()), "c1+");
  const Schedule barrier = dissemination_barrier(topology);
  const Program meeting = barrier.program(0);
  EXPECT_EQ(label_of(barrier, meeting, 0, meeting.ops[0]), ">1");
}

}  // namespace
}  // namespace gradwire::schedule
