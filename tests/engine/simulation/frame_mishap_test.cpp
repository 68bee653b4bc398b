#include <algorithm>
#include <map>
#include <string>
#include <tuple>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/engine/simulated_job.h"
#include "tests/engine/wrapped_transport.h"
#include "tests/support/sim_collective.h"

namespace gradwire::test {
namespace {

constexpr int kRanks = 3;

/// The fault that one frame of a stream suffers. The bytes of all others arrive unchanged, so that
/// every checksum is valid.
struct Mishap {
  enum Kind { none, vanishes, repeats, changes_channel };
  Kind kind = none;
  net::StreamId stream;
  std::uint64_t frame = 0;
};

/// Forwards whole frames as they arrive, in order, except for the faulty one.
class MishapTransport final : public CountingTransport {
 public:
  MishapTransport(net::Transport& inner, Mishap mishap)
      : CountingTransport(inner), mishap_(mishap) {}

  Result<std::size_t> read(net::StreamId from, std::span<const Bytes> pieces) override {
    Incoming& incoming = incoming_[from.peer][from.rail];
    const Status more = fill(from, incoming);
    if (!more && incoming.ready.empty()) return tl::unexpected(more.error());
    std::size_t size = 0;
    for (const Bytes piece : pieces) {
      const std::size_t part = std::min(piece.size(), incoming.ready.size() - size);
      std::copy_n(incoming.ready.begin() + static_cast<std::ptrdiff_t>(size), part, piece.begin());
      size += part;
    }
    erase(incoming.ready, size);
    return size;
  }

  bool happened() const { return happened_; }

 private:
  struct Incoming {
    std::vector<std::byte> held;   ///< An incomplete frame.
    std::vector<std::byte> ready;  ///< Complete frames.
  };

  static void erase(std::vector<std::byte>& bytes, std::size_t count) {
    bytes.erase(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(count));
  }

  /// Reads all available bytes.
  Status fill(net::StreamId from, Incoming& incoming) {
    for (;;) {
      std::vector<std::byte> buffer(64 * 1024);
      const Bytes room(buffer);
      const Result<std::size_t> size = inner_.read(from, std::span(&room, 1));
      if (!size) return tl::unexpected(size.error());
      incoming.held.insert(incoming.held.end(), buffer.begin(),
                           buffer.begin() + static_cast<std::ptrdiff_t>(*size));
      while (const std::size_t whole = first_frame(incoming.held)) {
        pass(from, Bytes(incoming.held).first(whole), incoming.ready);
        erase(incoming.held, whole);
      }
      if (*size < buffer.size()) return {};
    }
  }

  /// Bytes of the first frame; 0 if it is incomplete.
  static std::size_t first_frame(ConstBytes held) {
    if (held.size() < net::kFrameHeaderBytes) return 0;
    const Result<net::FrameHeader> header = net::decode(held.first<net::kFrameHeaderBytes>());
    const std::size_t size = net::kFrameHeaderBytes + header->length;
    return held.size() < size ? 0 : size;
  }

  void pass(net::StreamId from, Bytes frame, std::vector<std::byte>& ready) {
    const bool is_it =
        mishap_.kind != Mishap::none && from == mishap_.stream && frames_++ == mishap_.frame;
    happened_ = happened_ || is_it;
    if (is_it && mishap_.kind == Mishap::vanishes) return;
    if (is_it && mishap_.kind == Mishap::changes_channel) {
      net::FrameHeader header = *net::decode(ConstBytes(frame).first<net::kFrameHeaderBytes>());
      header.channel = 77;
      encode(header, frame.first<net::kFrameHeaderBytes>());
    }
    const int times = is_it && mishap_.kind == Mishap::repeats ? 2 : 1;
    for (int i = 0; i < times; ++i) ready.insert(ready.end(), frame.begin(), frame.end());
  }

  Mishap mishap_;
  std::map<Rank, std::map<int, Incoming>> incoming_;
  std::uint64_t frames_ = 0;  ///< Frames of the faulty stream.
  bool happened_ = false;
};

/// Ranks that all-reduce in a ring, with a faulty frame from rank 0 to rank 1.
class TamperedJob {
 public:
  TamperedJob(int rails, std::size_t count, Mishap mishap)
      : case_{.algorithm = "ring", .ranks = kRanks, .count = count},
        job_(std::vector<net::SimHost>(
                 kRanks, {.rails = std::vector<net::SimPort>(static_cast<std::size_t>(rails))}),
             {0, 1, 2}, {.window_bytes = 64 * 1024, .unit_bytes = 16 * 1024}, {},
             [&](Rank rank, net::Transport& endpoint) {
               auto wrapped =
                   std::make_unique<MishapTransport>(endpoint, rank == 1 ? mishap : Mishap{});
               if (rank == 1) tampering_ = wrapped.get();
               return wrapped;
             }) {
    for (Rank r = 0; r < kRanks; ++r) inputs_.push_back(make_input(case_, r, 5));
    for (Rank r = 0; r < kRanks; ++r) {
      const auto i = static_cast<std::size_t>(r);
      outcomes_.push_back(std::make_shared<Outcome>(&job_.network()));
      job_.executor(r).post(make_request(case_, r, inputs_[i], outputs_[i], outcomes_[i]),
                            job_.now());
    }
  }

  bool run(Duration limit) {
    return job_.run(Time(limit), [&] {
      return std::ranges::all_of(outcomes_, [](const auto& o) { return o->done(); });
    });
  }
  const Outcome& outcome(Rank rank) const { return *outcomes_[static_cast<std::size_t>(rank)]; }
  const std::optional<Error>& error(Rank rank) { return job_.executor(rank).error(); }
  bool happened() const { return tampering_->happened(); }

 private:
  Case case_;
  MishapTransport* tampering_ = nullptr;
  engine::SimulatedJob job_;
  std::vector<Memory> inputs_;
  std::vector<Memory> outputs_ = std::vector<Memory>(kRanks);
  std::vector<std::shared_ptr<Outcome>> outcomes_;
};

constexpr std::size_t kLarge = 300'000;

/// Pings are at most a second apart, and are sent after the missing frame.
constexpr Duration kNextPing = std::chrono::seconds(3);

class FrameMishap : public testing::TestWithParam<std::tuple<int, std::uint64_t>> {};

TEST_P(FrameMishap, AVanishedFrameEndsTheJobWithTheNextOne) {
  const auto [rails, frame] = GetParam();
  for (int rail = 0; rail < rails; ++rail) {
    TamperedJob job(rails, kLarge, {Mishap::vanishes, {0, rail}, frame});
    ASSERT_TRUE(job.run(kNextPing)) << "rail " << rail;
    ASSERT_TRUE(job.happened());
    EXPECT_EQ(job.outcome(1).last.kind, ErrorKind::corrupted);
    EXPECT_THAT(job.outcome(1).last.message,
                testing::AllOf(testing::HasSubstr("rank 0 (simulated"),
                               testing::HasSubstr("frame " + std::to_string(frame + 1)),
                               testing::HasSubstr(std::to_string(frame) + " was due")));
    if (rails > 1) {
      EXPECT_THAT(job.outcome(1).last.message, testing::HasSubstr("rail " + std::to_string(rail)));
    }
    for (Rank r = 0; r < kRanks; ++r) EXPECT_EQ(job.outcome(r).failures, 1) << "rank " << r;
  }
}

TEST_P(FrameMishap, ARepeatedFrameEndsTheJobAtOnce) {
  const auto [rails, frame] = GetParam();
  for (int rail = 0; rail < rails; ++rail) {
    TamperedJob job(rails, kLarge, {Mishap::repeats, {0, rail}, frame});
    job.run(kNextPing);
    ASSERT_TRUE(job.happened());
    ASSERT_TRUE(job.error(1));
    EXPECT_EQ(job.error(1)->kind, ErrorKind::corrupted);
    EXPECT_THAT(job.error(1)->message, testing::HasSubstr(std::to_string(frame + 1) + " was due"));
  }
}

INSTANTIATE_TEST_SUITE_P(Streams, FrameMishap,
                         testing::Combine(testing::Values(1, 2), testing::Values(0, 1, 2, 7)));

TEST(FrameMishap, WithoutOneTheSameJobEndsWell) {
  for (const int rails : {1, 2}) {
    TamperedJob job(rails, kLarge, {});
    ASSERT_TRUE(job.run(kNextPing));
    for (Rank r = 0; r < kRanks; ++r) EXPECT_EQ(job.outcome(r).successes, 1);
  }
}

/// Also if the operation is not posted yet and small enough to be sent eagerly.
TEST(FrameMishap, DataOfAnOperationThatNobodyAnnouncedEndsTheJobAtOnce) {
  TamperedJob job(1, 30, {Mishap::changes_channel, {0, 0}, 1});
  ASSERT_TRUE(job.run(kNextPing));
  ASSERT_TRUE(job.happened());
  EXPECT_EQ(job.outcome(1).last.kind, ErrorKind::corrupted);
  EXPECT_THAT(job.outcome(1).last.message, testing::HasSubstr("not announced"));
}

}  // namespace
}  // namespace gradwire::test
