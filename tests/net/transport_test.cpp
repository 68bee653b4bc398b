// Requirements of every Transport, tested over TCP, shared memory and simulated streams.

#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/transport_pair.h"

namespace gradwire::net {
namespace {

using test::Data;
using test::random_data;
using test::TransportPair;

struct Kind {
  std::string name;
  std::function<std::unique_ptr<TransportPair>()> make;
  int rails = 1;
  bool checksums = true;
  std::size_t late = 0;  ///< Maximum accepted bytes that may be delivered only after the next
                         ///< write.
  std::size_t plenty = 5'000'000;  ///< More than a stream buffers.
};

void PrintTo(const Kind& kind, std::ostream* out) {
  *out << kind.name;
}

class AnyTransport : public testing::TestWithParam<Kind> {
 protected:
  Transport& of(Rank rank) { return pair_->of(rank); }
  static StreamId towards(Rank rank, int rail = 0) { return {.peer = rank, .rail = rail}; }

  Result<std::size_t> write(Rank from, ConstBytes data, int rail = 0) {
    return of(from).write(towards(1 - from, rail), std::span(&data, 1));
  }

  /// Reads as the executor does: in place if possible.
  Result<std::size_t> read_some(Rank to, Data& into, std::size_t max_bytes, int rail = 0) {
    const StreamId stream = towards(1 - to, rail);
    if (of(to).reads_in_place(stream)) {
      const auto there = of(to).peek(stream);
      if (!there) return tl::unexpected<Error>(there.error());
      const ConstBytes taken = there->first(std::min(max_bytes, there->size()));
      into.insert(into.end(), taken.begin(), taken.end());
      of(to).consume(stream, taken.size());
      return taken.size();
    }
    Data buffer(max_bytes);
    const Bytes piece(buffer);
    const auto count = of(to).read(stream, std::span(&piece, 1));
    if (count) {
      into.insert(into.end(), buffer.begin(), buffer.begin() + static_cast<std::ptrdiff_t>(*count));
    }
    return count;
  }

  void await(Rank rank, bool ReadyEvent::*what, int rail = 0) {
    for (;;) {
      const std::vector<ReadyEvent> events = pair_->wait(rank);
      ASSERT_FALSE(events.empty()) << "no event";
      for (const ReadyEvent& event : events) {
        if (event.rail == rail && event.*what) return;
      }
    }
  }

  /// Reads until `size` bytes have arrived.
  Data read_exactly(Rank to, std::size_t size, int rail = 0) {
    Data got;
    while (got.size() < size) {
      const auto count = read_some(to, got, size - got.size(), rail);
      EXPECT_TRUE(count) << count.error().message;
      if (!count) break;
      if (*count == 0) await(to, &ReadyEvent::readable, rail);
      if (HasFatalFailure()) break;
    }
    return got;
  }

  std::unique_ptr<TransportPair> pair_ = GetParam().make();
};

TEST_P(AnyTransport, HasItsRails) {
  EXPECT_EQ(of(0).rails(1), GetParam().rails);
  EXPECT_EQ(of(1).rails(0), GetParam().rails);
  EXPECT_EQ(of(0).needs_checksums(towards(1)), GetParam().checksums);
}

TEST_P(AnyTransport, CarriesMoreThanItHoldsBothWays) {
  const Data data[2] = {random_data(GetParam().plenty), random_data(GetParam().plenty - 1)};
  Data got[2];
  std::size_t written[2] = {0, 0};
  Random random(1);
  while (got[0].size() < data[1].size() || got[1].size() < data[0].size()) {
    std::size_t moved = 0;
    for (Rank r = 0; r < 2; ++r) {
      const ConstBytes rest = ConstBytes(data[r]).subspan(written[r]);
      const ConstBytes offered =
          rest.first(std::min<std::size_t>(rest.size(), random.below(300'000)));
      const auto taken = write(r, offered);
      ASSERT_TRUE(taken) << taken.error().message;
      written[r] += *taken;
      const auto count = read_some(r, got[r], 1 + random.below(200'000));
      ASSERT_TRUE(count) << count.error().message;
      moved += *taken + *count;
    }
    if (moved == 0) pair_->wait(0);
  }
  EXPECT_TRUE(got[0] == data[1]);
  EXPECT_TRUE(got[1] == data[0]);
}

TEST_P(AnyTransport, ReportsRoomAfterARefusal) {
  const Data data = random_data(1'000'000);
  std::size_t written = 0;
  for (;;) {
    const auto taken = write(0, data);
    ASSERT_TRUE(taken);
    written += *taken;
    if (*taken == 0) break;
  }
  for (int round = 0; round < 5; ++round) {
    const std::size_t due = written - GetParam().late;
    EXPECT_EQ(read_exactly(1, due).size(), due);
    ASSERT_NO_FATAL_FAILURE(await(0, &ReadyEvent::writable));
    written = GetParam().late;
    while (const std::size_t taken = *write(0, data)) written += taken;
    ASSERT_GT(written, GetParam().late);
  }
}

TEST_P(AnyTransport, JoinsPiecesInOrder) {
  const Data data = random_data(200 * 37);
  std::vector<ConstBytes> pieces;
  for (std::size_t i = 0; i < 200; ++i) pieces.push_back(ConstBytes(data).subspan(i * 37, 37));
  std::size_t written = 0;
  while (written < data.size()) {
    std::vector<ConstBytes> rest;
    std::size_t skip = written;
    for (const ConstBytes& piece : pieces) {
      const std::size_t skipped = std::min(skip, piece.size());
      skip -= skipped;
      rest.push_back(piece.subspan(skipped));  // May be empty.
    }
    written += *of(0).write(towards(1), rest);
  }
  EXPECT_TRUE(read_exactly(1, data.size()) == data);
}

TEST_P(AnyTransport, LastBytesCanBeReadAfterTheEnd) {
  const Data data = random_data(1000);
  ASSERT_EQ(read_exactly(1, 0).size(), 0u);
  std::size_t written = 0;
  while (written < data.size()) written += *write(0, ConstBytes(data).subspan(written));
  of(0).close(towards(1));
  of(0).close(towards(1));
  Data got;
  for (;;) {
    const auto count = read_some(1, got, 300);
    if (!count) {
      EXPECT_EQ(count.error().kind, ErrorKind::disconnected);
      EXPECT_THAT(count.error().message, testing::HasSubstr("closed the connection"));
      break;
    }
    if (*count > 0) continue;
    ASSERT_NO_FATAL_FAILURE(await(1, &ReadyEvent::readable));
  }
  EXPECT_TRUE(got == data);
  EXPECT_EQ(write(0, data).error().kind, ErrorKind::aborted);
  EXPECT_EQ(read_some(0, got, 10).error().kind, ErrorKind::aborted);
}

TEST_P(AnyTransport, EndThatCameWithTheLastBytesIsReportedAgain) {
  const Data data = random_data(10);
  std::size_t written = 0;
  while (written < data.size()) written += *write(0, ConstBytes(data).subspan(written));
  of(0).close(towards(1));
  Data got;
  // A caller that reads only after events, with read(), and less than fits.
  for (;;) {
    ASSERT_NO_FATAL_FAILURE(await(1, &ReadyEvent::readable));
    Data buffer(100);
    const Bytes piece(buffer);
    const auto count = of(1).read(towards(0), std::span(&piece, 1));
    if (!count) break;
    got.insert(got.end(), buffer.begin(), buffer.begin() + static_cast<std::ptrdiff_t>(*count));
  }
  EXPECT_TRUE(got == data);
}

TEST_P(AnyTransport, KnowsWhatHasBeenDelivered) {
  EXPECT_EQ(of(0).delivered(towards(1)), 0u);
  const Data data = random_data(100'000);
  std::size_t written = 0;
  std::size_t before = 0;
  while (written < data.size()) {
    const std::size_t rest = data.size() - written;
    const auto taken = write(0, ConstBytes(data).subspan(written, std::min<std::size_t>(rest, 99)));
    ASSERT_TRUE(taken);
    written += *taken;
    const std::size_t delivered = of(0).delivered(towards(1));
    EXPECT_LE(delivered, written);
    EXPECT_GE(delivered, std::exchange(before, delivered));
    read_exactly(1, *taken);
  }
  // The acknowledgement follows the read; another byte gives it time to arrive.
  for (int i = 0; i < 1000 && of(0).delivered(towards(1)) < data.size(); ++i) {
    while (*write(1, ConstBytes(data).first(1)) == 0) continue;
    read_exactly(0, 1);
  }
  EXPECT_EQ(of(0).delivered(towards(1)), data.size());
  of(0).close(towards(1));
  EXPECT_EQ(of(0).delivered(towards(1)), data.size());
}

TEST_P(AnyTransport, RailsAreStreamsOfTheirOwn) {
  for (int rail = 0; rail < GetParam().rails; ++rail) {
    const Data data = random_data(100 + static_cast<std::size_t>(rail));
    std::size_t written = 0;
    while (written < data.size()) written += *write(0, ConstBytes(data).subspan(written), rail);
  }
  for (int rail = GetParam().rails - 1; rail >= 0; --rail) {
    const Data expected = random_data(100 + static_cast<std::size_t>(rail));
    EXPECT_TRUE(read_exactly(1, expected.size(), rail) == expected) << "rail " << rail;
  }
  const int last = GetParam().rails - 1;
  of(0).close(towards(1, last));
  Data got;
  while (read_some(1, got, 10, last)) {
    ASSERT_NO_FATAL_FAILURE(await(1, &ReadyEvent::readable, last));
  }
  if (last == 0) return;
  const Data more = random_data(7);
  std::size_t written = 0;
  while (written < more.size()) written += *write(0, ConstBytes(more).subspan(written));
  EXPECT_TRUE(read_exactly(1, more.size()) == more);
}

Kind real(std::string name, std::size_t rails, bool neighbors) {
  return {std::move(name), [=] { return test::open_pair(rails, neighbors); },
          neighbors ? 1 : static_cast<int>(rails), !neighbors};
}

Kind encrypted(std::string name, std::size_t rails, bool neighbors) {
  return {std::move(name), [=] { return test::open_pair(rails, neighbors, true); },
          neighbors ? 1 : static_cast<int>(rails), rails > 1 && !neighbors,
          neighbors ? 0 : TlsStream::kBatchBytes};
}

Kind simulated(std::string name, std::size_t rails, bool short_io) {
  const SimOptions options{.window_bytes = 100'000, .unit_bytes = 4096, .short_io = short_io};
  return {std::move(name),
          [=] { return std::make_unique<test::SimulatedPair>(options, rails); },
          static_cast<int>(rails),
          true,
          0,
          short_io ? 200'000u : 1'000'000u};
}

INSTANTIATE_TEST_SUITE_P(All, AnyTransport,
                         testing::Values(real("tcp", 1, false), real("tcp_rails", 3, false),
                                         real("shared_memory", 1, true),
                                         encrypted("encrypted", 1, false),
                                         encrypted("encrypted_rails", 3, false),
                                         encrypted("shared_memory_not_encrypted", 2, true),
                                         real("shared_memory_instead_of_rails", 2, true),
                                         simulated("simulated", 1, false),
                                         simulated("simulated_rails", 3, false),
                                         simulated("simulated_short", 2, true)),
                         [](const auto& kind) { return kind.param.name; });

}  // namespace
}  // namespace gradwire::net
