#include "gradwire/engine/links/frame_queue.h"

#include <gtest/gtest.h>

#include "tests/support/sim_collective.h"

namespace gradwire::test {
namespace {

/// A queue with frames of one operation, and the reader of its stream.
class Frames {
 public:
  Frames() : flight_({}, -1, make_request(case_, 0, input_, output_, nullptr)) {}

  /// The payload's size is the header's length.
  void push(net::FrameType type, std::size_t length) {
    engine::OutgoingFrame frame;
    frame.fill({.type = type, .length = static_cast<std::uint32_t>(length)},
               ConstBytes(payload_).first(length), true);
    if (type == net::FrameType::data) frame.flight = &flight_;
    queue_.push(std::move(frame));
  }

  /// Lets the stream accept this many of the offered bytes.
  void write(std::size_t bytes) {
    std::array<ConstBytes, 64> pieces;
    std::size_t count = 0;
    queue_.gather(pieces, count);
    queue_.wrote(bytes);
    for (std::size_t i = 0; i < count; ++i) {
      const ConstBytes taken = pieces[i].first(std::min(bytes, pieces[i].size()));
      stream_.insert(stream_.end(), taken.begin(), taken.end());
      bytes -= taken.size();
    }
    ASSERT_EQ(bytes, 0u);
  }
  void write_all() { write(queue_.unwritten()); }

  /// Types and numbers of the complete frames in the stream.
  std::vector<std::pair<net::FrameType, std::uint64_t>> read() const {
    std::vector<std::pair<net::FrameType, std::uint64_t>> frames;
    for (std::size_t at = 0; at + net::kFrameHeaderBytes <= stream_.size();) {
      const auto header =
          net::decode(ConstBytes(stream_).subspan(at).first<net::kFrameHeaderBytes>());
      if (!header) break;
      frames.emplace_back(header->type, header->number);
      at += net::kFrameHeaderBytes + header->length;
    }
    return frames;
  }

  engine::FrameQueue& queue() { return queue_; }

 private:
  Case case_{.ranks = 2, .count = 10};
  Memory input_ = make_input(case_, 0, 1);
  Memory output_;
  engine::InFlightOperation flight_;
  std::vector<std::byte> payload_ = std::vector<std::byte>(1000, std::byte{7});
  engine::FrameQueue queue_;
  std::vector<std::byte> stream_;
};

using Read = std::vector<std::pair<net::FrameType, std::uint64_t>>;
constexpr std::size_t kWhole = net::kFrameHeaderBytes + 1000;

TEST(FrameQueue, NumbersFramesInTheOrderOfTheStream) {
  Frames frames;
  frames.push(net::FrameType::announce, 8);
  for (int i = 0; i < 50; ++i) frames.push(net::FrameType::data, 0);
  while (frames.queue().unwritten() > 0) {
    frames.write(std::min<std::size_t>(frames.queue().unwritten(), 700));
    while (frames.queue().front_is_written()) frames.queue().pop_written();
  }
  const Read read = frames.read();
  ASSERT_EQ(read.size(), 51u);
  for (std::size_t i = 0; i < read.size(); ++i) EXPECT_EQ(read[i].second, i);
}

/// An operation fails after `written` bytes of three frames with payloads of 1000 bytes.
Read after_a_failure(std::size_t written, bool one_is_popped) {
  Frames frames;
  for (int i = 0; i < 3; ++i) frames.push(net::FrameType::data, 1000);
  frames.push(net::FrameType::ping, 0);
  frames.write(written);
  if (one_is_popped) frames.queue().pop_written();
  frames.queue().drop_messages();
  frames.push(net::FrameType::abort, 10);
  frames.write_all();
  return frames.read();
}

TEST(FrameQueue, AfterAFailureTheStreamStaysReadableAndCounted) {
  const auto data = net::FrameType::data, ping = net::FrameType::ping,
             abort = net::FrameType::abort;
  EXPECT_EQ(after_a_failure(0, false), (Read{{ping, 0}, {abort, 1}}));
  EXPECT_EQ(after_a_failure(10, false), (Read{{data, 0}, {ping, 1}, {abort, 2}}));
  EXPECT_EQ(after_a_failure(kWhole, true), (Read{{data, 0}, {ping, 1}, {abort, 2}}));
  EXPECT_EQ(after_a_failure(kWhole + 1, true), (Read{{data, 0}, {data, 1}, {ping, 2}, {abort, 3}}));
}

/// All frames are in flight, although only one has been popped.
TEST(FrameQueue, SeveralWrittenFramesMayBeThereWhenAnOperationFails) {
  const auto data = net::FrameType::data, ping = net::FrameType::ping,
             abort = net::FrameType::abort;
  EXPECT_EQ(after_a_failure(3 * kWhole, true),
            (Read{{data, 0}, {data, 1}, {data, 2}, {ping, 3}, {abort, 4}}));
}

}  // namespace
}  // namespace gradwire::test
