#include "gradwire/schedule/layout.h"

#include <memory>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace gradwire::schedule {
namespace {

TEST(ChunkLayout, CutsOnElementBoundariesWithoutGaps) {
  for (std::uint32_t chunks : {1u, 3u, 7u, 64u}) {
    for (std::size_t elements : {0u, 1u, 2u, 63u, 64u, 65u, 1000u}) {
      for (std::size_t size : {1u, 2u, 8u}) {
        const ChunkLayout layout(chunks, elements, size);
        std::size_t at = 0;
        for (std::uint32_t c = 0; c < chunks; ++c) {
          const ByteRange range = layout.byte_range(c);
          EXPECT_EQ(range.begin, at);
          EXPECT_EQ(range.size() % size, 0u);
          EXPECT_GE(range.size(), elements / chunks * size);
          EXPECT_LE(range.size(), (elements / chunks + 1) * size);
          at = range.end;
        }
        EXPECT_EQ(at, elements * size);
        EXPECT_EQ(layout.byte_range(0, chunks).size(), elements * size);
      }
    }
  }
}

TEST(ChunkLayout, GivesScratchSlotsTheSizeOfTheirChunk) {
  ProgramBuilder builder;
  const Slice first = builder.scratch(0);
  const Slice second = builder.scratch(2);
  const Program program = std::move(builder).build();
  const ChunkLayout layout(3, 10, 8);  // Chunks of 4, 3 and 3 elements.
  EXPECT_EQ(layout.byte_range(first, program).begin, 0u);
  EXPECT_EQ(layout.byte_range(first, program).size(), 32u);
  EXPECT_EQ(layout.byte_range(second, program).begin, ChunkLayout::kScratchAlignment);
  EXPECT_EQ(layout.byte_range(second, program).size(), 24u);
  EXPECT_EQ(layout.scratch_bytes(program), 2 * ChunkLayout::kScratchAlignment);
}

TEST(ChunkLayout, JoinsSlotsOfConsecutiveChunks) {
  ProgramBuilder builder;
  const Slice alone = builder.scratch(1);
  const Slice run = builder.scratch(3, 2);
  const Program program = std::move(builder).build();
  const ChunkLayout layout(5, 13, 4);  // Chunks of 3, 3, 3, 2 and 2 elements.
  EXPECT_EQ(layout.size(alone, program), 12u);
  EXPECT_EQ(layout.byte_range(run, program).begin, ChunkLayout::kScratchAlignment);
  EXPECT_EQ(layout.byte_range(run, program).size(), 16u);
  const Slice second{Buffer::scratch, run.first + 1, 1};
  EXPECT_EQ(layout.byte_range(second, program).begin, ChunkLayout::kScratchAlignment + 8);
  EXPECT_EQ(layout.scratch_bytes(program), 2 * ChunkLayout::kScratchAlignment);
}

TEST(ChunkLayout, KnowsUnequalPartsOfInputAndOutput) {
  const std::vector<std::size_t> to{3, 0, 5};
  const std::vector<std::size_t> from{1, 2, 0};
  const ChunkLayout layout(std::make_shared<const Splits>(to, from), 8);
  EXPECT_EQ(layout.byte_range(Buffer::input, 0).size(), 24u);
  EXPECT_EQ(layout.byte_range(Buffer::input, 1).size(), 0u);
  EXPECT_EQ(layout.byte_range(Buffer::input, 2).begin, 24u);
  EXPECT_EQ(layout.byte_range(Buffer::input, 2).end, 64u);
  EXPECT_EQ(layout.byte_range(Buffer::output, 1).begin, 8u);
  EXPECT_EQ(layout.byte_range(Buffer::output, 0, 3).size(), 24u);
  EXPECT_EQ(layout.size({Buffer::input, 0, 2}, {}), 24u);
  EXPECT_EQ(layout.scratch_bytes({}), 0u);
}

TEST(FlowsThrough, NeedsTheSameSlice) {
  const auto send = [](Slice src) { return Op{.kind = OpKind::send, .peer = 1, .src = src}; };
  const auto recv = [](Slice dst) { return Op{.kind = OpKind::recv, .peer = 1, .dst = dst}; };
  const Slice two{Buffer::output, 0, 2};
  EXPECT_TRUE(flows_through(recv(two), send(two)));
  EXPECT_TRUE(flows_through(recv(two), send({Buffer::input, 0, 2})));
  EXPECT_FALSE(flows_through(recv(two), send({Buffer::output, 0, 1})));
  EXPECT_FALSE(flows_through(recv(two), send({Buffer::output, 1, 2})));
  EXPECT_FALSE(flows_through(recv(two), send({Buffer::output, 2, 2})));
  EXPECT_FALSE(flows_through(recv({Buffer::scratch, 0, 1}), send({Buffer::output, 0, 1})));
  EXPECT_FALSE(flows_through(recv({Buffer::output, 0, 0}), send({Buffer::output, 0, 0})));
}

}  // namespace
}  // namespace gradwire::schedule
