#include <algorithm>
#include <set>
#include <thread>

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "gradwire/cli/probe/echo.h"
#include "gradwire/cli/probe/measure.h"
#include "gradwire/cli/probe/roster.h"
#include "gradwire/cli/probe/stream_probe.h"
#include "tests/support/host.h"
#include "tests/support/transport_pair.h"

namespace gradwire::cli {
namespace {

std::vector<int> own_machines(int hosts) {
  std::vector<int> machines;
  for (int i = 0; i < hosts; ++i) machines.push_back(i);
  return machines;
}

/// Expects every pair of hosts exactly once, and each host at most once per round.
void expect_all_pairs(const std::vector<int>& machines) {
  std::set<HostPair> seen;
  for (const auto& round : rounds_of_pairs(machines)) {
    std::set<int> busy;
    for (const auto& [a, b] : round) {
      EXPECT_LT(a, b);
      EXPECT_TRUE(seen.insert({a, b}).second);
      const std::set<int> theirs{machines[static_cast<std::size_t>(a)],
                                 machines[static_cast<std::size_t>(b)]};
      for (const int machine : theirs) EXPECT_TRUE(busy.insert(machine).second);
    }
  }
  EXPECT_EQ(seen.size(), machines.size() * (machines.size() - 1) / 2);
}

TEST(RoundsTest, EveryPairOnceAndNobodyTwiceAtATime) {
  for (int hosts = 1; hosts <= 17; ++hosts) {
    expect_all_pairs(own_machines(hosts));
    const std::size_t rounds = hosts == 1 ? 0 : static_cast<std::size_t>(hosts + hosts % 2 - 1);
    EXPECT_EQ(rounds_of_pairs(own_machines(hosts)).size(), rounds) << hosts;
  }
}

TEST(MachinesTest, TheLowestRankOfEachLeads) {
  const Machines machines({"b", "a", "b", "c", "a"});
  EXPECT_EQ(machines.count(), 3);
  std::vector<Rank> leaders;
  for (Rank rank = 0; rank < 5; ++rank)
    leaders.push_back(machines.leader(machines.number_of(rank)));
  EXPECT_EQ(leaders, (std::vector<Rank>{0, 1, 0, 3, 1}));
  EXPECT_EQ(machines.ranks_on(1).back(), 4);
}

TEST(RoundsTest, HostsOnOneMachineTakeTurns) {
  expect_all_pairs({0, 0, 0, 0});
  EXPECT_EQ(rounds_of_pairs({0, 0, 0, 0}).size(), 6u);
  expect_all_pairs({0, 0, 1, 1, 2});
}

net::SocketAddress loopback() {
  return *net::SocketAddress::of("127.0.0.1", 0);
}

std::vector<net::Socket> one_socket() {
  std::vector<net::Socket> sockets;
  sockets.push_back(*net::bind_datagrams(loopback()));
  return sockets;
}

TEST(EchoTest, AnswersDatagramsWithTheToken) {
  const EchoServer echo(one_socket(), echo_token("0123456789abcdef"));
  auto friendly = EchoClient::create(test::kClock, loopback(), "", echo.addresses().front(),
                                     echo_token("0123456789abcdef"));
  ASSERT_TRUE(friendly) << friendly.error().message;
  EXPECT_EQ(friendly->largest_packet(9000), 9000u);
  const auto lost = friendly->loss(1500, 100);
  ASSERT_TRUE(lost) << lost.error().message;
  EXPECT_EQ(lost->asked, 100);
  EXPECT_EQ(lost->lost, 0);
  auto unauthenticated = EchoClient::create(test::kClock, loopback(), "", echo.addresses().front(),
                                            echo_token("fedcba9876543210"));
  ASSERT_TRUE(unauthenticated);
  EXPECT_EQ(unauthenticated->passes(100, 1, std::chrono::milliseconds(20)), false);
}

TEST(EchoTest, WhereNobodyAnswersAllIsLost) {
  net::SocketAddress gone;
  { gone = net::local_address(*net::bind_datagrams(loopback())); }
  auto client =
      EchoClient::create(test::kClock, loopback(), "", gone, echo_token("0123456789abcdef"));
  ASSERT_TRUE(client);
  EXPECT_EQ(client->largest_packet(1500), 0u);
  const auto lost = client->loss(100, 9);
  ASSERT_TRUE(lost) << lost.error().message;
  EXPECT_EQ(lost->asked, 9);
  EXPECT_EQ(lost->part(), 1.0);
}

/// An EchoServer behind a link that drops every hundredth packet.
void answer_99_percent(const net::Socket& socket, const net::Socket& stop) {
  std::vector<std::byte> question(2000);
  std::array<pollfd, 2> items{pollfd{stop.descriptor(), POLLIN, 0},
                              pollfd{socket.descriptor(), POLLIN, 0}};
  while (::poll(items.data(), items.size(), -1) > 0 && items[0].revents == 0) {
    while (const auto datagram = net::receive_datagram(socket, question)) {
      const auto number = load_little_endian<std::uint32_t>(question.data() + 16);
      if (number % 100 == 50) continue;
      (void)net::send_datagram(socket, datagram->from,
                               ConstBytes(question).first(EchoServer::kBytes));
    }
  }
}

TEST(EchoTest, ALossOfOneInAHundredIsSeen) {
  const net::Socket lossy = *net::bind_datagrams(loopback());
  const net::Socket stop(::eventfd(0, EFD_CLOEXEC));
  std::thread echo([&] { answer_99_percent(lossy, stop); });
  auto client =
      EchoClient::create(test::kClock, loopback(), "", net::local_address(lossy), EchoToken{});
  const auto lost = client->loss(1500);
  const std::uint64_t one = 1;
  EXPECT_EQ(::write(stop.descriptor(), &one, sizeof one), 8);
  echo.join();
  ASSERT_TRUE(lost) << lost.error().message;
  EXPECT_LE(lost->asked, kLossQuestions);
  EXPECT_NEAR(lost->part(), 0.01, 0.002);
}

Duration five_seconds_ahead() {
  return time_of_day() + std::chrono::seconds(5);
}

/// Rank 0, whose clock is five seconds ahead, and rank 1; each probes the other in turn.
std::array<RoundTrips, 2> round_trips_of_both(int count) {
  const auto pair = test::open_pair(1, false);
  std::array<Result<RoundTrips>, 2> found;
  const auto take_turns = [&](Rank me, TimeOfDay own_time) {
    Wire wire(pair->of(me), test::kClock);
    const net::StreamId stream{.peer = 1 - me, .rail = 0};
    for (const Rank asks : {0, 1}) {
      if (asks == me) {
        found[static_cast<std::size_t>(me)] = measure_round_trips(wire, stream, count, own_time);
      } else {
        EXPECT_TRUE(answer_round_trips(wire, stream, count, own_time));
      }
    }
  };
  std::thread other([&] { take_turns(1, time_of_day); });
  take_turns(0, five_seconds_ahead);
  other.join();
  return {found[0].value(), found[1].value()};
}

TEST(RoundTripsTest, FindHowFarAClockIsAheadOrBehind) {
  const auto [ahead, behind] = round_trips_of_both(20);
  for (const RoundTrips& one : {ahead, behind}) {
    EXPECT_GT(one.shortest, Duration::zero());
    EXPECT_GE(one.median, one.shortest);
  }
  // The kernel may adjust the rate of one of the clocks.
  const Duration tick = std::chrono::microseconds(1);
  EXPECT_LE(std::chrono::abs(ahead.clock_offset - std::chrono::seconds(5)), ahead.shortest + tick);
  EXPECT_LE(std::chrono::abs(behind.clock_offset + std::chrono::seconds(5)),
            behind.shortest + tick);
}

/// Sends little at a time until it has received much.
class SlowAtFirst final : public net::PollingTransport {
 public:
  static constexpr std::size_t kBytesPerMillisecond = 16384;
  static constexpr std::size_t kMuch = 1 << 20;

  explicit SlowAtFirst(net::PollingTransport& inner) : inner_(inner) {}

  int rails(Rank peer) const override { return inner_.rails(peer); }
  Result<std::size_t> write(net::StreamId stream, std::span<const ConstBytes> pieces) override {
    if (received_ > kMuch) return inner_.write(stream, pieces);
    const ConstBytes piece = pieces.front().first(std::min(left_, pieces.front().size()));
    held_back_ = piece.size() < pieces.front().size();
    if (piece.empty()) return std::size_t{0};
    const auto written = inner_.write(stream, std::array{piece});
    if (written) left_ -= *written;
    return written;
  }
  Result<std::size_t> read(net::StreamId stream, std::span<const Bytes> pieces) override {
    const auto got = inner_.read(stream, pieces);
    if (got) received_ += *got;
    return got;
  }
  std::size_t delivered(net::StreamId stream) override { return inner_.delivered(stream); }
  void close(net::StreamId stream) override { inner_.close(stream); }
  std::string describe(net::StreamId stream) const override { return inner_.describe(stream); }
  void wake() override { inner_.wake(); }
  void poll(Duration timeout, std::vector<net::ReadyEvent>& events) override {
    const bool held_back = std::exchange(held_back_, false);
    inner_.poll(held_back ? std::min<Duration>(timeout, std::chrono::milliseconds(1)) : timeout,
                events);
    left_ = kBytesPerMillisecond;
    if (held_back) events.push_back({.peer = 1, .writable = true});
  }

 private:
  net::PollingTransport& inner_;
  std::size_t left_ = kBytesPerMillisecond;
  std::size_t received_ = 0;
  bool held_back_ = false;
};

/// Hosts "a" and "b" measure each other over loopback; returns the results of "a".
Result<topology::Cluster> measured_between(net::PollingTransport& first,
                                           net::PollingTransport& second) {
  const auto prober = [](Rank rank) {
    const std::string host = rank == 0 ? "a" : "b";
    const bootstrap::RailEndpoint rail{.address = loopback(), .interface = "lo"};
    return Prober{.rank = rank, .ranks = 2, .host = host, .machine = host, .rails = {rail}};
  };
  const ProbeOptions options{
      .bandwidth_time = std::chrono::milliseconds(30), .loss_questions = 0, .round_trips = 3};
  std::thread other([&] { (void)measure_cluster(second, prober(1), test::kClock, options); });
  auto found = measure_cluster(first, prober(0), test::kClock, options);
  other.join();
  return found;
}

TEST(MeasureTest, TheFirstRateIsMeasuredAgainWhenALaterOneIsHigher) {
  const auto pair = test::open_pair(1, false);
  SlowAtFirst first(pair->of(0));
  const auto found = measured_between(first, pair->of(1));
  ASSERT_TRUE(found) << found.error().message;
  ASSERT_EQ(found->paths.size(), 2U);
  for (const topology::MeasuredPath& path : found->paths) {
    EXPECT_GT(path.bytes_per_second, 4.0 * SlowAtFirst::kBytesPerMillisecond * 1000) << path.from;
  }
}

}  // namespace
}  // namespace gradwire::cli
