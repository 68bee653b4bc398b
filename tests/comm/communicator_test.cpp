#include "gradwire/comm/communicator.h"

#include <algorithm>
#include <atomic>
#include <future>
#include <numeric>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/local_job.h"

namespace gradwire::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(Communicator, SeveralOperationsInFlightAreAllRight) {
  LocalJob job(4);
  const auto errors = job.run([](Rank rank, Communicator& c) {
    std::vector<std::vector<float>> data;
    std::vector<Work> works;
    for (std::size_t i = 0; i < 20; ++i)
      data.emplace_back(1 + i * 9973, static_cast<float>(rank + 1));
    for (std::size_t i = 0; i < data.size(); ++i) {
      works.push_back(
          c.all_reduce(lend(data[i]), ReduceOp::sum, {.priority = static_cast<int>(i)}));
    }
    for (auto work = works.rbegin(); work != works.rend(); ++work) work->wait();
    for (const auto& values : data) {
      for (const float v : values) ASSERT_EQ(v, 10.0f);
    }
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

TEST(Communicator, ReservedLanesAreExclusive) {
  LocalJob job(2);
  const auto errors = job.run([](Rank, Communicator& c) {
    EXPECT_EQ(c.reserve_lanes(1), 1);
    EXPECT_EQ(c.reserve_lanes(10), 2);
    EXPECT_EQ(c.reserve_lanes(0), 12);
    EXPECT_EQ(c.reserve_lanes(1), 12);
    const int rest = (1 << 30) - 13;
    EXPECT_EQ(c.reserve_lanes(rest), 13);
    EXPECT_THROW(c.reserve_lanes(1), Exception);
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

TEST(Communicator, EncryptionChangesNoBit) {
  using Results = std::vector<std::vector<float>>;
  Results plain(3), encrypted(3);
  for (Results* results : {&plain, &encrypted}) {
    LocalJob job(3, {}, {.wire = results == &plain ? Wire::tcp : Wire::tls});
    const auto errors = job.run([&](Rank rank, Communicator& c) {
      auto& mine = (*results)[static_cast<std::size_t>(rank)];
      for (const std::size_t count : {1u, 5000u, 1'000'000u}) {
        std::vector<float> values(count);
        for (std::size_t i = 0; i < count; ++i) values[i] = 1.0f / static_cast<float>(i + 1 + rank);
        for (int again = 0; again < 3; ++again) c.all_reduce(lend(values), ReduceOp::mean).wait();
        mine.insert(mine.end(), values.begin(), values.end());
      }
    });
    for (const std::string& error : errors) EXPECT_EQ(error, "");
  }
  EXPECT_EQ(plain, encrypted);
  EXPECT_EQ(encrypted[0], encrypted[2]);
}

TEST(Communicator, ManyThreadsMayWaitAtOnce) {
  LocalJob job(2);
  const auto errors = job.run([](Rank, Communicator& c) {
    std::vector<std::vector<float>> data(8, std::vector<float>(50'000, 1.0f));
    std::vector<Work> works;
    for (auto& values : data) works.push_back(c.all_reduce(lend(values), ReduceOp::sum));
    std::vector<std::thread> waiters;
    for (const Work& work : works) waiters.emplace_back([work] { work.wait(); });
    for (std::thread& waiter : waiters) waiter.join();
    for (const auto& values : data) ASSERT_EQ(values.back(), 2.0f);
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

TEST(Communicator, OperationsProgressWithoutAWaitingThread) {
  LocalJob job(3);
  std::atomic<int> called = 0;
  std::vector<std::vector<float>> data(3, std::vector<float>(300'000, 1.0f));
  std::vector<Work> works(3);
  job.run([&](Rank rank, Communicator& c) {
    auto& work = works[static_cast<std::size_t>(rank)];
    work = c.all_reduce(lend(data[static_cast<std::size_t>(rank)]), ReduceOp::sum);
    work.on_done([&](const Work& done) { called += done.error() == nullptr ? 1 : 100; });
  });
  while (called < 3) std::this_thread::yield();
  EXPECT_EQ(called, 3);
  EXPECT_EQ(data[1].front(), 3.0f);
}

/// Three threads of rank 0: one waits for a large message to leave, one drives the network until an
/// answer to the first comes, and one posts small messages. These also write what the large one has
/// left to write, so that posting them may complete it.
void wakes_the_waiter_of_what_a_post_completes(Wire wire) {
  constexpr int kRounds = 12;
  constexpr Duration kGenerous = std::chrono::seconds(20);
  LocalJob job(2, {}, {.wire = wire});
  const auto errors = job.run([&](Rank rank, Communicator& c) {
    std::vector<float> big(1 << 20);
    std::vector<float> word(1);
    std::vector<float> count(1);
    for (int round = 0; round < kRounds; ++round) {
      if (rank == 1) {
        c.recv(lend(big), 0, 1).wait();
        c.recv(lend(count), 0, 4).wait();
        for (int i = 0; i < static_cast<int>(count.front()); ++i) c.recv(lend(word), 0, 2).wait();
        c.recv(lend(word), 0, 5).wait();
        c.send(lend(word), 0, 3).wait();
        continue;
      }
      std::vector<float> answer(1);
      const Work answered = c.recv(lend(answer), 1, 3);
      auto driver = std::async(std::launch::async, [&] { return answered.wait_for(kGenerous); });
      const Work large = c.send(lend(big), 1, 1);
      auto waiter = std::async(std::launch::async, [&] {
        const bool sent = large.wait_for(2 * kGenerous);
        c.send(lend(word), 1, 5).wait();
        return sent;
      });
      std::vector<Work> small;
      while (!large.done()) {
        if (small.size() < 400) small.push_back(c.send(lend(word), 1, 2));
        std::this_thread::yield();
      }
      count.front() = static_cast<float>(small.size());
      c.send(lend(count), 1, 4).wait();
      EXPECT_TRUE(driver.get()) << "the waiting thread slept on after its message had left";
      EXPECT_TRUE(waiter.get());
      answered.wait();
      for (const Work& work : small) work.wait();
    }
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

TEST(Communicator, AWaiterWakesWhenAPostCompletesItsOperationOverSharedMemory) {
  wakes_the_waiter_of_what_a_post_completes(Wire::shm);
}

TEST(Communicator, AWaiterWakesWhenAPostCompletesItsOperationOverTcp) {
  wakes_the_waiter_of_what_a_post_completes(Wire::tcp);
}

TEST(Communicator, CallbacksContinueBetweenShortWaitsOfAnotherThread) {
  constexpr int kRounds = 300;
  LocalJob job(2);
  const auto errors = job.run([](Rank rank, Communicator& c) {
    std::vector<float> echo(1);
    std::vector<float> small(1, 1.0f);
    for (int round = 0; round < kRounds; ++round) {
      std::vector<float> sent(1, static_cast<float>(round));
      std::promise<void> received;
      const Work in = c.recv(lend(echo), 1 - rank, 1);
      in.on_done([&](const Work&) { received.set_value(); });
      in.drive_in_background();
      c.all_reduce(lend(small), ReduceOp::max).wait();
      const Work out = c.send(lend(sent), 1 - rank, 1);
      out.drive_in_background();
      received.get_future().wait();
      ASSERT_EQ(echo.front(), static_cast<float>(round));
      out.wait();
    }
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

TEST(Communicator, MessagesWithATagKeepTheirOrder) {
  LocalJob job(2);
  const auto errors = job.run([](Rank rank, Communicator& c) {
    std::vector<float> first(10, 1.0f);
    std::vector<float> second(100'000, 2.0f);
    std::vector<float> other(3, 3.0f);
    if (rank == 0) {
      const Work a = c.send(lend(first), 1, 7);
      const Work b = c.send(lend(second), 1, 7);
      const Work d = c.send(lend(other), 1, 8);
      a.wait(), b.wait(), d.wait();
      return;
    }
    std::vector<float> in_first(10), in_second(100'000), in_other(3);
    c.recv(lend(in_other), 0, 8).wait();  // Posted first, sent last.
    const Work a = c.recv(lend(in_first), 0, 7);
    const Work b = c.recv(lend(in_second), 0, 7);
    b.wait(), a.wait();
    EXPECT_EQ(in_first, first);
    EXPECT_EQ(in_second, second);
    EXPECT_EQ(in_other, other);
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

TEST(Communicator, BothSendFirstAndReceiveAfterwards) {
  LocalJob job(2);
  const auto errors = job.run([](Rank rank, Communicator& c) {
    std::vector<float> mine(2'000'000, static_cast<float>(rank));
    std::vector<float> theirs(2'000'000);
    const Work sent = c.send(lend(mine), 1 - rank);
    const Work received = c.recv(lend(theirs), 1 - rank);
    sent.wait();
    received.wait();
    EXPECT_EQ(theirs.back(), static_cast<float>(1 - rank));
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

TEST(Communicator, ADifferentCountIsAnErrorOnEveryRankNamingBothSides) {
  LocalJob job(4);
  const auto errors = job.run([](Rank rank, Communicator& c) {
    std::vector<float> data(rank == 2 ? 1001 : 1000);
    c.all_reduce(lend(data), ReduceOp::sum).wait();
  });
  for (const std::string& error : errors) {
    EXPECT_THAT(error, AllOf(HasSubstr("disagree"), HasSubstr("1001 float32"),
                             HasSubstr("1000 float32"), HasSubstr("rank 2")));
  }
}

TEST(Communicator, ADifferentTypeReductionOrCollectiveIsAnError) {
  const auto disagreeing = [](const std::function<void(Rank, Communicator&)>& body) {
    LocalJob job(3);
    for (const std::string& error : job.run(body)) EXPECT_THAT(error, HasSubstr("disagree"));
  };
  disagreeing([](Rank rank, Communicator& c) {
    std::vector<double> data(64);
    c.all_reduce({data.data(), 64, rank == 0 ? DataType::int64 : DataType::float64, nullptr},
                 ReduceOp::sum)
        .wait();
  });
  disagreeing([](Rank rank, Communicator& c) {
    std::vector<float> data(64);
    c.all_reduce(lend(data), rank == 1 ? ReduceOp::max : ReduceOp::sum).wait();
  });
  disagreeing([](Rank rank, Communicator& c) {
    std::vector<float> data(64);
    if (rank == 2)
      c.barrier().wait();
    else
      c.all_reduce(lend(data), ReduceOp::sum).wait();
  });
}

TEST(Communicator, AnotherOrderOfCallsIsAnError) {
  LocalJob job(3);
  const auto errors = job.run([](Rank rank, Communicator& c) {
    std::vector<float> a(100'000), b(10);
    const Work first = c.all_reduce(lend(rank == 1 ? b : a), ReduceOp::sum);
    const Work second = c.all_reduce(lend(rank == 1 ? a : b), ReduceOp::sum);
    first.wait();
    second.wait();
  });
  for (const std::string& error : errors) EXPECT_THAT(error, HasSubstr("same order"));
}

TEST(Communicator, ARankThatLeavesIsNamed) {
  LocalJob job(3);
  std::vector<std::string> errors(3);
  std::thread leaver([&] { job.leave(1); });
  leaver.join();
  errors = job.run([](Rank, Communicator& c) {
    std::vector<float> data(1000);
    c.all_reduce(lend(data), ReduceOp::sum).wait();
  });
  EXPECT_THAT(errors[0], AllOf(HasSubstr("rank 1"), HasSubstr("left the job")));
  EXPECT_THAT(errors[2], AllOf(HasSubstr("rank 1"), HasSubstr("left the job")));
}

TEST(Communicator, ARootMayLeaveBeforeItsLeavesCall) {
  LocalJob job(3);
  auto errors = job.run([](Rank rank, Communicator& c) {
    std::vector<float> data(10, 5.0f);
    if (rank == 0) c.broadcast(lend(data), 0, {.algorithm = "tree"}).wait();
  });
  job.leave(0);
  errors = job.run([](Rank, Communicator& c) {
    std::vector<float> data(10);
    c.broadcast(lend(data), 0, {.algorithm = "tree"}).wait();
    EXPECT_EQ(data.back(), 5.0f);
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

TEST(Communicator, AnOperationThatARankDoesNotCallTimesOutAndSaysSo) {
  LocalJob job(3);
  const auto errors = job.run([](Rank rank, Communicator& c) {
    std::vector<float> data(1000);
    if (rank == 2) {
      // Alive, but not in a call: it learns of the failure at its next call.
      const Work late = c.recv(lend(data), 0, 5);
      late.wait();
    } else {
      c.all_reduce(lend(data), ReduceOp::sum, {.timeout = std::chrono::milliseconds(300)}).wait();
    }
  });
  EXPECT_THAT(errors[0], AllOf(HasSubstr("timeout of 0.3 s"), HasSubstr("rank 2")));
  EXPECT_THAT(errors[1], HasSubstr("rank 2"));
  EXPECT_THAT(errors[2], AllOf(HasSubstr("timeout of 0.3 s"), HasSubstr("reported by rank")));
}

TEST(Communicator, PreservedInputIsIntactAfterAFailureAndReplacedAfterSuccess) {
  LocalJob job(2);
  std::vector<std::vector<float>> data(2, std::vector<float>(100'000));
  for (auto& values : data) std::iota(values.begin(), values.end(), 0.0f);
  const std::vector<float> before = data[0];
  auto errors = job.run([&](Rank rank, Communicator& c) {
    c.all_reduce(lend(data[static_cast<std::size_t>(rank)]), ReduceOp::mean,
                 {.preserve_input = true})
        .wait();
  });
  EXPECT_EQ(errors[0] + errors[1], "");
  EXPECT_EQ(data[0], before);  // The mean of equal values.
  errors = job.run([&](Rank rank, Communicator& c) {
    auto& values = data[static_cast<std::size_t>(rank)];
    if (rank == 1) values.pop_back();
    c.all_reduce(lend(values), ReduceOp::sum, {.preserve_input = true}).wait();
  });
  EXPECT_THAT(errors[0], HasSubstr("the input is intact"));
  EXPECT_EQ(data[0], before);
}

TEST(Communicator, AnAbortReachesEveryRankWithItsReason) {
  LocalJob job(3);
  const auto errors = job.run([](Rank rank, Communicator& c) {
    if (rank == 0) c.abort("the loss is not a number");
    std::vector<float> data(1000);
    c.all_reduce(lend(data), ReduceOp::sum).wait();
  });
  for (const std::string& error : errors) EXPECT_THAT(error, HasSubstr("the loss is not a number"));
}

TEST(Communicator, AWorldOfOneNeedsNoNetwork) {
  const auto c = Communicator::connect(bootstrap::Job{});
  std::vector<float> data{1, 2, 3};
  c->all_reduce(lend(data), ReduceOp::mean).wait();
  c->broadcast(lend(data), 0).wait();
  c->barrier().wait();
  std::vector<float> gathered(3);
  c->all_gather(lend(data), lend(gathered)).wait();
  EXPECT_EQ(gathered, (std::vector<float>{1, 2, 3}));
  EXPECT_EQ(c->bytes_sent(), 0u);
}

TEST(Communicator, WrongArgumentsAreRefusedAtOnce) {
  LocalJob job(2);
  std::vector<float> three(3), six(6);
  Communicator& c = job.on(0);
  EXPECT_THROW(c.broadcast(lend(three), 2), Exception);
  EXPECT_THROW(c.all_gather(lend(three), lend(three)), Exception);
  EXPECT_THROW(c.reduce_scatter(lend(six), lend(six), ReduceOp::sum), Exception);
  EXPECT_THROW(c.send(lend(three), 2), Exception);
  EXPECT_THROW(c.send(lend(three), 1, -1), Exception);
  EXPECT_THROW(c.all_reduce(lend(three), ReduceOp::sum, {.algorithm = "rings"}), Exception);
}

TEST(Communicator, SixtyFourRanksOnOneMachine) {
  LocalJob job(64);
  const auto errors = job.run([](Rank, Communicator& c) {
    std::vector<float> data(1000, 1.0f);
    for (const char* algorithm : {"ring", "direct", "tree", "recursive_doubling"}) {
      std::ranges::fill(data, 1.0f);
      c.all_reduce(lend(data), ReduceOp::sum, {.algorithm = algorithm}).wait();
      ASSERT_EQ(data.front(), 64.0f) << algorithm;
    }
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

}  // namespace
}  // namespace gradwire::test
