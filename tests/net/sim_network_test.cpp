#include "gradwire/net/sim/sim_network.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/transport_pair.h"

namespace gradwire::net {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;
using test::Data;
using test::random_data;

constexpr double kMegabyte = 1e6;
constexpr Duration kLatency = microseconds(100);

SimPort port(double bytes_per_second) {
  return {.latency = kLatency, .bytes_per_second = bytes_per_second};
}

/// Units so small that splitting data into them makes no visible difference in time.
SimOptions fine() {
  return {.window_bytes = 100'000'000, .unit_bytes = 1000};
}

/// Two hosts with two unequal rails.
SimNetwork two_rails() {
  const SimHost host{.rails = {port(10 * kMegabyte), port(4 * kMegabyte)}};
  return {{host, host}, {0, 1}, fine()};
}

struct Stream {
  SimNetwork& network;
  Rank from;
  Rank to;
  int rail = 0;

  void write(std::size_t bytes) const {
    const Data data(bytes);
    const ConstBytes piece(data);
    const auto taken = network.endpoint(from).write({to, rail}, std::span(&piece, 1));
    ASSERT_EQ(taken.value_or(0), bytes);
  }

  /// Number of readable bytes; -1 at the end of the stream.
  int read() const {
    Data data(10'000'000);
    const Bytes piece(data);
    const auto count = network.endpoint(to).read({from, rail}, std::span(&piece, 1));
    return count ? static_cast<int>(*count) : -1;
  }

  std::size_t delivered() const { return network.endpoint(from).delivered({to, rail}); }
};

/// Advances time.
void pass(SimNetwork& network, Duration duration) {
  const Time until = network.now() + duration;
  while (network.next(until)) continue;
}

/// Returns the time until `stream` has delivered `bytes`.
Duration time_to_read(const Stream& stream, int bytes) {
  const Time begin = stream.network.now();
  int got = 0;
  while (got < bytes) {
    if (!stream.network.next(begin + seconds(100))) break;
    got += std::max(0, stream.read());
  }
  return stream.network.now() - begin;
}

void expect_near(Duration duration, Duration expected) {
  EXPECT_NEAR(static_cast<double>(duration.count()), static_cast<double>(expected.count()),
              0.01 * static_cast<double>(expected.count()));
}

TEST(SimNetwork, EachRailHasItsSpeed) {
  for (int rail = 0; rail < 2; ++rail) {
    SimNetwork network = two_rails();
    const Stream stream{network, 0, 1, rail};
    stream.write(1'000'000);
    expect_near(time_to_read(stream, 1'000'000),
                kLatency + (rail == 0 ? milliseconds(100) : milliseconds(250)));
  }
}

TEST(SimNetwork, RailsWorkSideBySide) {
  SimNetwork network = two_rails();
  const Stream slow{network, 0, 1, 1};
  slow.write(1'000'000);
  Stream{network, 0, 1, 0}.write(2'500'000);
  expect_near(time_to_read(slow, 1'000'000), kLatency + milliseconds(250));
  EXPECT_NEAR((Stream{network, 0, 1, 0}.read()), 2'500'000, 30'000);
}

TEST(SimNetwork, PairHasAsManyRailsAsTheHostWithFewer) {
  const SimHost two{.rails = {port(1e6), port(1e6)}};
  const SimHost one{.rails = {port(1e6)}};
  SimNetwork network({two, one, two}, {0, 1, 2, 2}, fine());
  EXPECT_EQ(network.endpoint(0).rails(1), 1);
  EXPECT_EQ(network.endpoint(0).rails(2), 2);
  EXPECT_EQ(network.endpoint(2).rails(3), 1);
}

TEST(SimNetwork, RanksOfOneHostShareItsPort) {
  const SimHost host{.rails = {port(10 * kMegabyte)}};
  SimNetwork network({host, host}, {0, 0, 1, 1}, fine());
  Stream{network, 0, 2}.write(1'000'000);
  const Stream second{network, 1, 3};
  second.write(1'000'000);
  expect_near(time_to_read(second, 1'000'000), kLatency + milliseconds(200));
}

TEST(SimNetwork, RanksOfOneHostMeetInside) {
  const SimHost host{.rails = {port(10 * kMegabyte)}, .inside = port(100 * kMegabyte)};
  SimNetwork network({host, host}, {0, 0, 1}, fine());
  Stream{network, 0, 2}.write(5'000'000);
  const Stream inside{network, 0, 1};
  inside.write(1'000'000);
  network.cut(0);
  expect_near(time_to_read(inside, 1'000'000), kLatency + milliseconds(10));
}

TEST(SimNetwork, SpeedChangesWhileRunning) {
  SimNetwork network = two_rails();
  const Stream stream{network, 0, 1};
  network.set_speed(1, 0, kMegabyte);
  stream.write(1'000'000);
  expect_near(time_to_read(stream, 1'000'000), kLatency + seconds(1));
  network.set_speed(1, 0, 10 * kMegabyte);
  stream.write(1'000'000);
  expect_near(time_to_read(stream, 1'000'000), kLatency + milliseconds(100));
}

TEST(SimNetwork, CutRailTakesOnlyItsOwnBytes) {
  SimNetwork network = two_rails();
  const Stream cut{network, 0, 1, 0};
  const Stream whole{network, 0, 1, 1};
  cut.write(1'000'000);
  whole.write(100'000);
  pass(network, milliseconds(50));
  network.cut(1, 0);
  pass(network, seconds(1));
  EXPECT_NEAR(cut.read(), 500'000, 5000);
  EXPECT_EQ(cut.read(), 0);  // No end is notified.
  EXPECT_EQ(whole.read(), 100'000);
}

TEST(SimNetwork, CutRailAcknowledgesNoMore) {
  SimNetwork network = two_rails();
  const Stream stream{network, 0, 1, 0};
  stream.write(1'000'000);
  pass(network, milliseconds(50));
  network.cut(0, 0);
  pass(network, seconds(1));
  const std::size_t delivered = stream.delivered();
  EXPECT_GT(delivered, 400'000u);
  EXPECT_LT(delivered, static_cast<std::size_t>(stream.read()));  // Some were in flight.
}

TEST(SimNetwork, AcknowledgementTakesALatency) {
  SimNetwork network = two_rails();
  const Stream stream{network, 0, 1};
  stream.write(1000);
  pass(network, kLatency + kLatency / 2 + microseconds(100));
  EXPECT_EQ(stream.read(), 1000);
  EXPECT_EQ(stream.delivered(), 0u);
  pass(network, kLatency);
  EXPECT_EQ(stream.delivered(), 1000u);
}

TEST(SimNetwork, ResetRailDropsBytesInFlightOnly) {
  SimNetwork network = two_rails();
  const Stream stream{network, 0, 1, 0};
  const Stream other{network, 0, 1, 1};
  stream.write(1'000'000);
  other.write(1000);
  pass(network, milliseconds(50));
  network.reset(1, 0, 0);
  pass(network, seconds(1));
  EXPECT_LE(stream.delivered(), 505'000u);
  EXPECT_NEAR(stream.read(), 500'000, 5000);
  EXPECT_EQ(stream.read(), -1);
  EXPECT_EQ((Stream{network, 1, 0, 0}.read()), -1);
  EXPECT_FALSE(network.endpoint(0).write({1, 0}, {}));
  EXPECT_EQ(other.read(), 1000);
  EXPECT_EQ(other.read(), 0);
}

/// A kernel whose program has closed its end does the same.
TEST(SimNetwork, ClosedEndAcknowledgesDiscardedBytes) {
  SimNetwork network = two_rails();
  const Stream stream{network, 0, 1};
  stream.write(1000);
  pass(network, milliseconds(1));
  network.endpoint(1).close({0, 0});
  stream.write(500);
  pass(network, milliseconds(1));
  EXPECT_EQ(stream.delivered(), 1500u);
  EXPECT_EQ(stream.read(), -1);
}

TEST(SimNetwork, SameSeedSameEvents) {
  const auto history = [](std::uint64_t seed) {
    SimOptions options = fine();
    options.seed = seed;
    options.short_io = true;
    options.stall_one_in = 3;
    const SimHost host{.rails = {port(kMegabyte), port(kMegabyte)}};
    SimNetwork network({host, host}, {0, 1}, options);
    std::vector<std::int64_t> events;
    const Data data(10'000);
    const ConstBytes piece(data);
    for (int rail = 0; rail < 2; ++rail) {
      EXPECT_TRUE(network.endpoint(0).write({1, rail}, std::span(&piece, 1)));
    }
    while (const auto event = network.next(Time(seconds(10)))) {
      events.push_back(network.now().time_since_epoch().count() * 2 + event->ready.rail);
    }
    return events;
  };
  EXPECT_EQ(history(1), history(1));
  EXPECT_NE(history(1), history(2));
}

}  // namespace
}  // namespace gradwire::net
