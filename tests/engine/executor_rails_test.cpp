#include <algorithm>
#include <string>
#include <tuple>

#include <gtest/gtest.h>

#include "gradwire/engine/links/rail_sender.h"
#include "gradwire/engine/simulated_job.h"
#include "tests/engine/wrapped_transport.h"
#include "tests/support/sim_collective.h"

namespace gradwire::test {
namespace {

constexpr std::size_t kRanks = 4;
constexpr double kFast = 1.25e8;  ///< 1 Gb/s
constexpr double kSlow = 0.5e8;   ///< 400 Mb/s

/// An all-reduce on four hosts with a fast and a slow rail each.
class TwoRails {
 public:
  explicit TwoRails(const Case& c)
      : TwoRails(c, {{.bytes_per_second = kFast}, {.bytes_per_second = kSlow}}, 64 * 1024) {}
  TwoRails(const Case& c, std::vector<net::SimPort> rails, std::size_t window_bytes)
      : case_(c),
        job_(std::vector<net::SimHost>(kRanks, {.rails = std::move(rails)}), {0, 1, 2, 3},
             {.window_bytes = window_bytes, .unit_bytes = 16 * 1024}, options()) {
    post();
  }

  /// Posts the next all-reduce.
  void post(std::size_t count) {
    case_.count = count;
    post();
  }
  void post() {
    inputs_.clear();
    outcomes_.clear();
    for (Rank r = 0; r < static_cast<Rank>(kRanks); ++r) {
      inputs_.push_back(make_input(case_, r, 3));
      outcomes_.push_back(std::make_shared<Outcome>());
    }
    for (Rank r = 0; r < static_cast<Rank>(kRanks); ++r) {
      const auto i = static_cast<std::size_t>(r);
      job_.executor(r).post(make_request(case_, r, inputs_[i], outputs_[i], outcomes_[i]),
                            job_.now());
    }
  }

  bool run_until(Time until) {
    return job_.run(until, [&] {
      return std::ranges::all_of(outcomes_, [](const auto& o) { return o->done(); });
    });
  }
  /// Checks every rank's result.
  void expect_success() {
    for (Rank r = 0; r < static_cast<Rank>(kRanks); ++r) {
      const auto i = static_cast<std::size_t>(r);
      ASSERT_EQ(outcomes_[i]->successes, 1) << outcomes_[i]->last.message;
      expect_right(case_, r, inputs_, outputs_[i]);
    }
  }

  engine::SimulatedJob& job() { return job_; }
  const std::vector<std::string>& notices() const { return notices_; }

 private:
  engine::ExecutorOptions options() {
    engine::ExecutorOptions options;
    options.on_warning = [this](const std::string& text) { notices_.push_back(text); };
    return options;
  }

  Case case_;
  std::vector<std::string> notices_;
  engine::SimulatedJob job_;
  std::vector<Memory> inputs_;
  std::vector<Memory> outputs_ = std::vector<Memory>(kRanks);
  std::vector<std::shared_ptr<Outcome>> outcomes_;
};

Case large(const char* algorithm) {
  return {.algorithm = algorithm, .ranks = static_cast<int>(kRanks), .count = 1'000'000};
}

constexpr double kBytes = 4e6;
/// Lower bound of an all-reduce's time: each rank sends and receives 2 (P-1)/P of the data.
constexpr double kBound = 1.5 * kBytes / (kFast + kSlow);

TEST(Rails, UnequalRailsAreBothFull) {
  for (const char* algorithm : {"direct", "ring"}) {
    TwoRails rails(large(algorithm));
    ASSERT_TRUE(rails.run_until(Time(std::chrono::seconds(2))));
    rails.expect_success();
    const double seconds =
        std::chrono::duration<double>(rails.job().now().time_since_epoch()).count();
    EXPECT_LT(seconds, kBound / 0.9) << algorithm;
  }
}

TEST(Rails, ARailThatSlowsDownIsRelieved) {
  TwoRails rails(large("direct"));
  rails.run_until(Time(std::chrono::milliseconds(10)));
  for (Rank r = 0; r < static_cast<Rank>(kRanks); ++r) rails.job().network().set_speed(r, 0, 2e6);
  // At the rate of the other rail, the all-reduce takes 120 ms. The data in flight to three peers
  // on the slow rail takes 98 ms, once when chunks are reduced and once when they are distributed.
  ASSERT_TRUE(rails.run_until(Time(std::chrono::milliseconds(350))));
  rails.expect_success();
  EXPECT_TRUE(rails.notices().empty());
}

/// Returns the seconds of the third of three consecutive all-reduces, when rates are known.
double third_of(const std::vector<net::SimPort>& ports) {
  TwoRails rails({.algorithm = "ring", .ranks = static_cast<int>(kRanks), .count = 200'000}, ports,
                 1 << 20);
  Time begin{};
  for (int round = 0; round < 3; ++round) {
    if (round > 0) rails.post();
    begin = rails.job().now();
    EXPECT_TRUE(rails.run_until(begin + std::chrono::seconds(20)));
    rails.expect_success();
  }
  return std::chrono::duration<double>(rails.job().now() - begin).count();
}

TEST(Rails, ALateRailIsNotSlowerThanNone) {
  const net::SimPort prompt{.bytes_per_second = kFast};
  const double alone = third_of({prompt});
  for (const int late : {15, 50, 150}) {
    net::SimPort other = prompt;
    other.latency = std::chrono::milliseconds(late);
    EXPECT_LT(third_of({prompt, other}), 1.05 * alone) << late << " ms at each end";
  }
}

class LostRail : public testing::TestWithParam<std::tuple<const char*, int, bool>> {};

TEST_P(LostRail, CostsNothingButItsBandwidthAndIsReportedOnce) {
  const auto [algorithm, rail, reset] = GetParam();
  TwoRails rails(large(algorithm));
  rails.run_until(Time(std::chrono::milliseconds(8)));
  if (reset) {
    for (Rank r = 1; r < static_cast<Rank>(kRanks); ++r) rails.job().network().reset(0, r, rail);
  } else {
    rails.job().network().cut(0, rail);
  }
  ASSERT_TRUE(rails.run_until(Time(std::chrono::seconds(3))));
  rails.expect_success();
  rails.job().run(rails.job().now() + std::chrono::seconds(1), [] { return false; });
  // Once by each rank. In a ring, opposite ranks exchange no messages, and a cut link is noticed
  // only by ranks that use it.
  const bool unnoticed = !reset && rail == 1 && std::string(algorithm) == "ring";
  EXPECT_EQ(rails.notices().size(), unnoticed ? 3u : 4u);
  for (const std::string& notice : rails.notices()) {
    EXPECT_NE(notice.find("rail " + std::to_string(rail) + " is gone"), std::string::npos);
  }
}

INSTANTIATE_TEST_SUITE_P(Rails, LostRail,
                         testing::Combine(testing::Values("direct", "ring"), testing::Range(0, 2),
                                          testing::Bool()));

constexpr std::size_t kSmall = 100'000;

/// Alternates small all-reduces and pauses until `until`; all must succeed.
void keep_busy(TwoRails& rails, Time until) {
  do {
    ASSERT_TRUE(rails.run_until(rails.job().now() + std::chrono::seconds(20)));
    rails.expect_success();
    rails.job().run(rails.job().now() + std::chrono::milliseconds(150), [] { return false; });
    rails.post(kSmall);
  } while (rails.job().now() < until);
  ASSERT_TRUE(rails.run_until(rails.job().now() + std::chrono::seconds(20)));
  rails.expect_success();
}

std::ptrdiff_t count_news(const TwoRails& rails, const std::string& text) {
  return std::ranges::count_if(
      rails.notices(), [&](const std::string& n) { return n.find(text) != std::string::npos; });
}

double seconds_of_large(TwoRails& rails) {
  rails.post(1'000'000);
  const Time begin = rails.job().now();
  EXPECT_TRUE(rails.run_until(begin + std::chrono::seconds(20)));
  rails.expect_success();
  return std::chrono::duration<double>(rails.job().now() - begin).count();
}

class RailOutage : public testing::TestWithParam<std::tuple<const char*, int, int>> {};

TEST_P(RailOutage, EndsWithBothRailsInUse) {
  const auto [algorithm, rail, milliseconds] = GetParam();
  TwoRails rails(large(algorithm));
  rails.run_until(Time(std::chrono::milliseconds(8)));
  rails.job().network().cut(0, rail);
  keep_busy(rails, rails.job().now() + std::chrono::milliseconds(milliseconds));
  rails.job().network().mend(0, rail);
  keep_busy(rails, rails.job().now() + std::chrono::seconds(5));
  EXPECT_EQ(count_news(rails, "is gone"), count_news(rails, "is back"));
  EXPECT_GE(count_news(rails, "is back"), 3);
  seconds_of_large(rails);  // Measures the rates of the rails.
  EXPECT_LT(seconds_of_large(rails), kBound / 0.85);
}

INSTANTIATE_TEST_SUITE_P(Rails, RailOutage,
                         testing::Combine(testing::Values("direct"), testing::Range(0, 2),
                                          testing::Values(900, 4000)));

TEST(Rails, AFlappingRailCostsLittle) {
  TwoRails rails(large("ring"));
  for (int i = 0; i < 12; ++i) {
    rails.job().network().cut(0, 1);
    keep_busy(rails, rails.job().now() + std::chrono::milliseconds(800 + 100 * i));
    rails.job().network().mend(0, 1);
    keep_busy(rails, rails.job().now() + std::chrono::milliseconds(1700));
  }
  EXPECT_GE(count_news(rails, "is back"), 3);
  EXPECT_LE(count_news(rails, "is gone"), 4 * 6) << "the back-off grows";
}

TEST(Rails, TheOtherRailCarriesEverythingOnceTheFirstIsBack) {
  TwoRails rails(large("direct"));
  rails.job().network().cut(0, 0);
  keep_busy(rails, Time(std::chrono::seconds(2)));
  rails.job().network().mend(0, 0);
  keep_busy(rails, rails.job().now() + std::chrono::seconds(5));
  EXPECT_GE(count_news(rails, "rail 0 is back"), 3);
  rails.job().network().cut(0, 1);
  keep_busy(rails, rails.job().now() + std::chrono::seconds(3));
  EXPECT_GE(count_news(rails, "rail 1 is gone"), 3);
}

/// Writes `bytes` to rank 1 and lets `duration` pass.
void write_and_wait(engine::RailSender& sender, net::SimNetwork& network, std::size_t bytes,
                    Duration duration) {
  const std::vector<std::byte> payload(bytes);
  sender.push(sender.make({.type = net::FrameType::data}, payload, true));
  ASSERT_TRUE(sender.write(network.endpoint(0), false));
  while (sender.next_written() != nullptr) {
  }
  const Time until = network.now() + duration;
  while (network.next(until)) {
  }
}

TEST(Rails, TimeWithoutAnythingToSendDoesNotLowerTheRate) {
  net::SimNetwork network(std::vector<net::SimPort>(2, {.bytes_per_second = kFast}),
                          {.window_bytes = 1 << 24});
  engine::RailSender sender({1, 0}, network.endpoint(0), true);
  for (int i = 0; i < 40; ++i) {
    sender.measure(network.endpoint(0), network.now());
    write_and_wait(sender, network, 64 * 1024, std::chrono::microseconds(400));
  }
  const double busy = sender.seconds_until(100'000).value();
  for (int i = 0; i < 5; ++i) {
    sender.measure(network.endpoint(0), network.now());
    write_and_wait(sender, network, 64 * 1024, std::chrono::seconds(1));
  }
  sender.measure(network.endpoint(0), network.now());
  EXPECT_LT(sender.seconds_until(100'000).value(), 2 * busy);
}

/// Loses a rail with a written but undelivered frame, then changes the frame's memory. `over`:
/// after the operation has ended.
Result<std::vector<engine::OutgoingFrame>> lost_and_overwritten(bool over) {
  net::SimNetwork network(std::vector<net::SimPort>(2), {});
  net::Transport& transport = network.endpoint(0);
  engine::RailSender sender({1, 0}, transport, true);
  std::vector<std::byte> payload(1000, std::byte{1});
  engine::OutgoingFrame frame = sender.make({.type = net::FrameType::data}, payload, true);
  const Case c{.ranks = 2, .count = 500};
  const Memory input = make_input(c, 0, 1);
  Memory output;
  engine::InFlightOperation flight({}, -1, make_request(c, 0, input, output, nullptr));
  frame.flight = &flight;
  sender.push(std::move(frame));
  EXPECT_TRUE(sender.write(transport, false));
  EXPECT_NE(sender.next_written(), nullptr);
  if (over) sender.keep_copies(flight);
  sender.stop(transport);
  payload[500] = std::byte{2};
  return sender.take_unreceived(0);
}

TEST(Rails, OverwrittenDataIsAnErrorAndIsNotResent) {
  const auto back = lost_and_overwritten(false);
  ASSERT_FALSE(back);
  EXPECT_EQ(back.error().kind, ErrorKind::disconnected);
}

TEST(Rails, DataToBeResentOutlivesItsOperation) {
  const auto back = lost_and_overwritten(true);
  ASSERT_TRUE(back);
  ASSERT_EQ(back->size(), 1u);
  EXPECT_EQ(std::vector<std::byte>(back->front().payload.begin(), back->front().payload.end()),
            std::vector<std::byte>(1000, std::byte{1}));
}

TEST(Rails, CountsThatCannotBeAreRefused) {
  net::SimNetwork network(std::vector<net::SimPort>(2), {});
  engine::RailSender sender({1, 0}, network.endpoint(0), true);
  sender.push(sender.make({.type = net::FrameType::ping}, {}, false));
  sender.stop(network.endpoint(0));
  EXPECT_FALSE(sender.take_unreceived(1)) << "it was never written";
  const auto back = sender.take_unreceived(0);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->size(), 1u);
}

}  // namespace
}  // namespace gradwire::test
