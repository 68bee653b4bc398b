#include "gradwire/engine/executor.h"

#include <algorithm>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/engine/simulated_job.h"
#include "tests/engine/messages.h"
#include "tests/engine/wrapped_transport.h"
#include "tests/support/sim_collective.h"

namespace gradwire::test {
namespace {

constexpr Time kSoon{std::chrono::seconds(1)};

/// A job whose transports count, with one buffer of outcomes.
class CountedJob {
 public:
  explicit CountedJob(int ranks, const engine::ExecutorOptions& options = {},
                      const net::SimOptions& network = {})
      : job_(std::vector<net::SimPort>(static_cast<std::size_t>(ranks)), network, options,
             [this](Rank, net::Transport& endpoint) {
               auto counting = std::make_unique<CountingTransport>(endpoint);
               counts_.push_back(counting.get());
               return counting;
             }) {}

  std::shared_ptr<Outcome> post(Rank rank, engine::OperationRequest request) {
    auto outcome = std::make_shared<Outcome>();
    request.completion = outcome;
    job_.executor(rank).post(std::move(request), job_.now());
    outcomes_.push_back(outcome);
    return outcome;
  }

  bool run(Time until = kSoon) {
    return job_.run(until, [&] {
      return std::ranges::all_of(outcomes_, [](const auto& o) { return o->done(); });
    });
  }
  void run_on(Duration duration) {
    job_.run(job_.now() + duration, [] { return false; });
  }

  CountingTransport& count(Rank rank) { return *counts_[static_cast<std::size_t>(rank)]; }
  engine::SimulatedJob& job() { return job_; }

 private:
  std::vector<CountingTransport*> counts_;
  std::vector<std::shared_ptr<Outcome>> outcomes_;
  engine::SimulatedJob job_;
};

engine::OperationRequest from_anyone(std::vector<float>& data, Rank self, int ranks, int tag) {
  std::vector<float> nothing(data.size());
  engine::OperationRequest request = message(data, (self + 1) % ranks, self, self, ranks, tag);
  request.program = nullptr;
  request.fingerprint.root = 0;
  request.program_from = [self, ranks](Rank from) {
    std::vector<float> none;
    return message(none, from, self, self, ranks, 0).program;
  };
  return request;
}

TEST(Executor, ASmallAllReduceCostsOneWriteAndOneReadAMessage) {
  CountedJob job(4);
  const Case c{.algorithm = "recursive_doubling", .ranks = 4, .count = 1};
  std::vector<Memory> outputs(4);
  std::vector<Memory> inputs;
  for (Rank r = 0; r < 4; ++r) inputs.push_back(make_input(c, r, 1));
  for (Rank r = 0; r < 4; ++r) {
    const auto i = static_cast<std::size_t>(r);
    job.post(r, make_request(c, r, inputs[i], outputs[i], nullptr));
  }
  ASSERT_TRUE(job.run());
  job.run_on(std::chrono::milliseconds(100));
  for (Rank r = 0; r < 4; ++r) {
    EXPECT_EQ(job.count(r).writes, 2);
    EXPECT_EQ(job.count(r).reads, 2);
    expect_right(c, r, inputs, outputs[static_cast<std::size_t>(r)]);
  }
}

/// Returns the share of the last switch's queue that rank 0 of four gives each peer, after it has
/// called an all-reduce.
std::map<Rank, double> shares_of(const char* algorithm, std::size_t count) {
  CountedJob job(4);
  const Case c{.algorithm = algorithm, .ranks = 4, .count = count};
  Memory input = make_input(c, 0, 1), output;
  job.post(0, make_request(c, 0, input, output, nullptr));
  job.job().executor(0).prepare_to_sleep();
  return job.count(0).shares;
}

TEST(Executor, ALargeMessageIsWrittenInWholeGsoBursts) {
  CountedJob job(2, {}, {.window_bytes = 64 << 20, .gso_burst_bytes = 65'160});
  std::vector<float> sent = counting_from(0, 1 << 20), got(sent.size());
  job.post(0, message(sent, 0, 1, 0, 2, 0));
  job.post(1, message(got, 0, 1, 1, 2, 0));
  ASSERT_TRUE(job.run());
  EXPECT_EQ(got, sent);
  EXPECT_GE(job.count(0).writes, 10);
  EXPECT_LE(job.count(0).unaligned_writes, 2);  // The announcement, and the end.
}

TEST(Executor, ConcurrentSendersShareTheSwitchQueue) {
  const std::map<Rank, double> shares = shares_of("direct", 1'000'000);
  for (Rank peer = 1; peer < 4; ++peer) EXPECT_DOUBLE_EQ(shares.at(peer), 1.0 / 3);
  EXPECT_EQ(shares_of("ring", 1'000'000).at(3), 1);
  EXPECT_EQ(shares_of("direct", 1000).at(1), 1);
}

TEST(Executor, BytesDueToManySmallOperationsAddUp) {
  constexpr int kOperations = 8;
  const Case c{.algorithm = "direct", .ranks = 4, .count = 20'000};  // 40 KB from each peer.
  EXPECT_EQ(shares_of("direct", c.count).at(1), 1);
  CountedJob job(4);
  Memory input = make_input(c, 0, 1);
  std::vector<Memory> outputs(kOperations);
  for (Memory& output : outputs) job.post(0, make_request(c, 0, input, output, nullptr));
  job.job().executor(0).prepare_to_sleep();
  for (Rank peer = 1; peer < 4; ++peer) EXPECT_DOUBLE_EQ(job.count(0).shares.at(peer), 1.0 / 3);
}

TEST(Executor, APeerThatSendsNothingNowKeepsItsShareForLater) {
  CountedJob job(4);
  const Case all{.algorithm = "direct", .ranks = 4, .count = 1'000'000};
  std::vector<Memory> inputs, outputs(5);
  for (Rank r = 0; r < 4; ++r) inputs.push_back(make_input(all, r, 1));
  for (Rank r = 0; r < 4; ++r) {
    const auto i = static_cast<std::size_t>(r);
    job.post(r, make_request(all, r, inputs[i], outputs[i], nullptr));
  }
  job.job().executor(0).prepare_to_sleep();
  ASSERT_TRUE(job.run());
  const Case one{.algorithm = "ring", .ranks = 4, .count = 1'000'000};
  job.post(0, make_request(one, 0, inputs[0], outputs[4], nullptr));
  job.job().executor(0).prepare_to_sleep();
  EXPECT_EQ(job.count(0).shares.at(3), 1);
  for (const Rank peer : {1, 2}) EXPECT_DOUBLE_EQ(job.count(0).shares.at(peer), 1.0 / 3);
}

TEST(Executor, LaterPeersGetASmallWindow) {
  const std::map<Rank, double> shares = shares_of("halving_doubling", 1'000'000);
  EXPECT_DOUBLE_EQ(shares.at(2), 1.0 / 2);
  EXPECT_DOUBLE_EQ(shares.at(1), 1.0 / 6);
}

TEST(Executor, AMismatchIsDetectedWithoutDataToSend) {
  CountedJob job(2);
  std::vector<Memory> outputs(2);
  std::vector<std::shared_ptr<Outcome>> outcomes;
  for (Rank r = 0; r < 2; ++r) {
    const Case c{.collective = schedule::Collective::broadcast,
                 .algorithm = std::string(
                     schedule::algorithm_names(schedule::Collective::broadcast).front()),
                 .ranks = 2,
                 .count = 5,
                 .root = 1 - r};
    const Memory input = make_input(c, r, 1);
    outcomes.push_back(
        job.post(r, make_request(c, r, input, outputs[static_cast<std::size_t>(r)], nullptr)));
  }
  ASSERT_TRUE(job.run(Time(std::chrono::milliseconds(50))));
  for (const auto& outcome : outcomes) EXPECT_EQ(outcome->last.kind, ErrorKind::mismatch);
}

TEST(Executor, OperationsPostedTogetherShareSystemCalls) {
  CountedJob job(2);
  std::vector<std::vector<float>> sent;
  std::vector<std::vector<float>> received(8, std::vector<float>(3));
  for (int i = 0; i < 8; ++i) sent.push_back(counting_from(static_cast<float>(i), 3));
  std::vector<engine::OperationRequest> sends;
  for (std::size_t i = 0; i < 8; ++i) {
    sends.push_back(message(sent[i], 0, 1, 0, 2, static_cast<int>(i)));
    sends.back().completion = std::make_shared<Outcome>();
    job.post(1, message(received[i], 0, 1, 1, 2, static_cast<int>(i)));
  }
  job.job().executor(0).post(std::move(sends), job.job().now());
  EXPECT_EQ(job.count(0).writes, 1);
  ASSERT_TRUE(job.run());
  EXPECT_EQ(received, sent);
}

/// Options for messages of 100 floats that are sent eagerly.
engine::ExecutorOptions with_budget(std::size_t bytes) {
  return {.limits = {.segment_bytes = 1024, .eager_bytes = 400, .eager_credit = bytes}};
}

/// Rank 0 runs far ahead and has spent its eager credit on messages that rank 1 has not posted,
/// while the data that rank 1 waits for is still to be sent.
TEST(Executor, ExhaustedCreditDoesNotBlockAwaitedMessages) {
  CountedJob job(2, with_budget(1000));
  std::vector<std::vector<float>> sent(6, counting_from(1, 100));
  std::vector<std::vector<float>> received(6, std::vector<float>(100));
  for (std::size_t i = 1; i < 6; ++i) {
    job.post(0, message(sent[i], 0, 1, 0, 2, static_cast<int>(i)));
  }
  const auto awaited = job.post(1, message(received[0], 0, 1, 1, 2, 0));
  job.post(0, message(sent[0], 0, 1, 0, 2, 0));
  job.run(Time(std::chrono::milliseconds(9)));
  EXPECT_EQ(awaited->successes, 1) << "before any timer";
  for (std::size_t i = 1; i < 6; ++i) {
    job.post(1, message(received[i], 0, 1, 1, 2, static_cast<int>(i)));
  }
  ASSERT_TRUE(job.run());
  EXPECT_EQ(received, sent);
}

/// Rank 1 receives one message after the other, and posts the last receives a little later.
TEST(Executor, MessagesContinueWhenCreditReturns) {
  CountedJob job(2, with_budget(4000));
  std::vector<std::vector<float>> sent(12, counting_from(1, 100));
  std::vector<std::vector<float>> received(12, std::vector<float>(100));
  for (auto& each : sent) job.post(0, message(each, 0, 1, 0, 2, 0));
  job.run_on(std::chrono::milliseconds(1));
  for (auto& each : received) {
    const auto outcome = job.post(1, message(each, 0, 1, 1, 2, 0));
    job.job().run(Time(std::chrono::milliseconds(9)), [&] { return outcome->done(); });
    ASSERT_TRUE(outcome->done()) << "before any timer";
  }
  EXPECT_EQ(received, sent);
}

/// Records the source of the message that a receive from any rank got.
class AnyOutcome final : public engine::Completion {
 public:
  void resolved(Rank from) override { source = from; }
  void succeeded() override { done = true; }
  void failed(const Error& e) override {
    done = true;
    error = e;
  }
  Rank source = -1;
  bool done = false;
  std::optional<Error> error;
};

class ReceiveFromAny : public testing::TestWithParam<std::size_t> {};

TEST_P(ReceiveFromAny, TakesWhatWasAnnouncedFirst) {
  CountedJob job(3);
  const std::size_t count = GetParam();
  std::vector<float> from_two = counting_from(200, count);
  std::vector<float> from_one = counting_from(100, count);
  std::vector<float> again = counting_from(300, count);
  job.post(2, message(from_two, 2, 0, 2, 3, 7));
  job.run_on(std::chrono::milliseconds(20));
  job.post(1, message(from_one, 1, 0, 1, 3, 7));
  job.run_on(std::chrono::milliseconds(20));
  std::vector<std::vector<float>> received(3, std::vector<float>(count));
  std::vector<std::shared_ptr<AnyOutcome>> outcomes;
  for (std::vector<float>& data : received) {
    engine::OperationRequest request = from_anyone(data, 0, 3, 7);
    request.completion = outcomes.emplace_back(std::make_shared<AnyOutcome>());
    job.job().executor(0).post(std::move(request), job.job().now());
  }
  job.run_on(std::chrono::milliseconds(20));
  EXPECT_FALSE(outcomes[2]->done);
  job.post(2, message(again, 2, 0, 2, 3, 7));  // This one matches the pending receive.
  job.run_on(std::chrono::milliseconds(20));
  EXPECT_EQ(outcomes[0]->source, 2);
  EXPECT_EQ(outcomes[1]->source, 1);
  EXPECT_EQ(outcomes[2]->source, 2);
  for (const auto& outcome : outcomes) {
    EXPECT_TRUE(outcome->done);
    EXPECT_FALSE(outcome->error);
  }
  EXPECT_EQ(received[0], from_two);
  EXPECT_EQ(received[1], from_one);
  EXPECT_EQ(received[2], again);
}

INSTANTIATE_TEST_SUITE_P(SmallAndLarge, ReceiveFromAny, testing::Values(0, 3, 100'000));

TEST(ReceiveFromAnyone, FailsWhenNobodyIsLeftOrNothingComes) {
  for (const bool leave : {true, false}) {
    CountedJob job(3);
    std::vector<float> data(4);
    engine::OperationRequest request = from_anyone(data, 0, 3, 1);
    const auto outcome = std::make_shared<AnyOutcome>();
    request.completion = outcome;
    job.job().executor(0).post(std::move(request), job.job().now());
    EXPECT_EQ(job.job().executor(0).in_flight(), 1u);
    if (leave) {
      job.job().executor(1).send_goodbye({});
      job.run_on(std::chrono::milliseconds(5));
      EXPECT_FALSE(outcome->done) << "there is still somebody";
      job.job().executor(2).send_goodbye({});
    }
    job.run_on(std::chrono::milliseconds(600));
    ASSERT_TRUE(outcome->error);
    EXPECT_EQ(outcome->error->kind, leave ? ErrorKind::disconnected : ErrorKind::timeout);
  }
}

TEST(Executor, AGoodbyeSaysWhyItsRankLeavesEarly) {
  CountedJob job(2);
  std::vector<float> data(4);
  const auto outcome = job.post(0, message(data, 1, 0, 0, 2, 1));
  job.job().executor(1).send_goodbye({}, "after an exception: ValueError: bad sample");
  job.run_on(std::chrono::milliseconds(50));
  ASSERT_TRUE(job.job().executor(0).error());
  EXPECT_THAT(job.job().executor(0).error()->message,
              testing::HasSubstr("rank 1 (simulated) left the job after an exception: ValueError: "
                                 "bad sample; message of 4 float32"));
  EXPECT_EQ(outcome->failures, 1);
}

/// Found by the fuzz target `engine`: a receive was announced after its end.
TEST(Executor, LeavingForgetsAReceiveWhoseAnnouncementWaits) {
  CountedJob job(2);
  std::vector<float> data(4);
  const auto outcome = job.post(0, message(data, 1, 0, 0, 2, 1));
  EXPECT_FALSE(job.job().executor(0).is_needed());
  job.job().executor(0).send_goodbye({ErrorKind::aborted, "left"});
  job.run_on(std::chrono::milliseconds(50));
  EXPECT_EQ(outcome->failures, 1);
  EXPECT_FALSE(job.job().executor(0).error());
  EXPECT_FALSE(job.job().executor(1).error());
}

TEST(Executor, UnequalPartsThatDoNotFitEndTheJobOnEveryRank) {
  for (const bool fits : {true, false}) {
    constexpr int kRanks = 3;
    CountedJob job(kRanks);
    std::vector<std::vector<float>> inputs;
    std::vector<std::vector<float>> outputs;
    std::vector<std::shared_ptr<Outcome>> outcomes;
    for (Rank r = 0; r < kRanks; ++r) {
      // Rank r sends r + p elements to rank p.
      std::vector<std::size_t> counts;
      for (Rank p = 0; p < kRanks; ++p) counts.push_back(static_cast<std::size_t>(r + p));
      std::vector<std::size_t> expected = counts;
      if (!fits && r == 0) expected[1] += 1;
      const auto total = [](const auto& c) {
        return std::accumulate(c.begin(), c.end(), std::size_t{0});
      };
      inputs.push_back(std::vector<float>(total(counts), static_cast<float>(r)));
      outputs.push_back(std::vector<float>(total(expected)));
      engine::OperationRequest request;
      request.program = engine::CompiledProgram::compile(
          value_or_throw(schedule::make_schedule({schedule::Collective::all_to_all}, "direct",
                                                 topology::Topology::uniform(kRanks))),
          r);
      request.fingerprint = {.collective = schedule::Collective::all_to_all,
                             .type = DataType::float32};
      request.splits = std::make_shared<const schedule::Splits>(counts, expected);
      request.input = reinterpret_cast<const std::byte*>(inputs.back().data());
      request.output = reinterpret_cast<std::byte*>(outputs.back().data());
      outcomes.push_back(job.post(r, std::move(request)));
    }
    ASSERT_TRUE(job.run());
    job.run_on(std::chrono::milliseconds(20));
    for (Rank r = 0; r < kRanks; ++r) {
      const Outcome& outcome = *outcomes[static_cast<std::size_t>(r)];
      if (!fits) {
        // Rank 2 may have received all its data before the others detect the mismatch.
        EXPECT_EQ(outcome.last.kind, r < 2 ? ErrorKind::mismatch : outcome.last.kind);
        ASSERT_TRUE(job.job().executor(r).error());
        EXPECT_EQ(job.job().executor(r).error()->kind, ErrorKind::mismatch);
        continue;
      }
      EXPECT_EQ(outcome.successes, 1);
      std::vector<float> truth;
      for (Rank p = 0; p < kRanks; ++p)
        truth.insert(truth.end(), static_cast<std::size_t>(r + p), static_cast<float>(p));
      EXPECT_EQ(outputs[static_cast<std::size_t>(r)], truth);
    }
  }
}

TEST(Executor, TheLongestTimeoutNeverComes) {
  CountedJob job(2);
  std::vector<float> data(10);
  engine::OperationRequest request = message(data, 0, 1, 1, 2, 0);
  request.timeout = Duration::max();
  const auto outcome = job.post(1, std::move(request));
  job.run_on(std::chrono::seconds(20));
  EXPECT_FALSE(outcome->done());
}

TEST(Executor, ReadsAwaitedStreamsWithoutEvents) {
  CountedJob job(2);
  std::vector<float> sent = counting_from(1, 10);
  std::vector<float> received(10);
  const auto outcome = job.post(1, message(received, 0, 1, 1, 2, 0));
  EXPECT_FALSE(job.job().executor(1).read_awaited(job.job().now()));
  job.post(0, message(sent, 0, 1, 0, 2, 0));
  // Waits until it has arrived, without handling the event.
  while (job.job().network().next(kSoon)) {
  }
  EXPECT_TRUE(job.job().executor(1).read_awaited(job.job().now()));
  EXPECT_EQ(outcome->successes, 1);
  EXPECT_EQ(received, sent);
  EXPECT_FALSE(job.job().executor(1).read_awaited(job.job().now()));
}

}  // namespace
}  // namespace gradwire::test
