#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gradwire/comm/communicator.h"
#include "tests/support/local_job.h"

/// Ranks that leave, fork or read after a barrier while operations are in flight.
namespace gradwire::test {
namespace {

/// Ranks 1 and up post an operation and leave without waiting for it, while rank 0 posts it a
/// little later. Returns the error of rank 0's Work.
std::string leave_behind(int ranks,
                         const std::function<Work(Rank, Communicator&, LentSpan)>& post) {
  LocalJob job(ranks);
  std::vector<std::thread> leavers;
  const auto values = [](Rank rank) {
    auto memory = std::make_shared<std::vector<float>>(1'000'000, static_cast<float>(rank + 1));
    return LentSpan{memory->data(), memory->size(), DataType::float32, memory};
  };
  for (Rank rank = 1; rank < ranks; ++rank) {
    post(rank, job.on(rank), values(rank));
    leavers.emplace_back([&job, rank] { job.leave(rank); });
  }
  std::string failed;
  try {
    post(0, job.on(0), values(0)).wait();
  } catch (const Exception& error) {
    failed = error.what();
  }
  for (std::thread& each : leavers) each.join();
  return failed;
}

TEST(Communicator, OperationsInFlightCompleteBeforeARankLeaves) {
  EXPECT_EQ(leave_behind(3, [](Rank, Communicator& c,
                               const LentSpan& data) { return c.reduce(data, 0, ReduceOp::sum); }),
            "");
  EXPECT_EQ(leave_behind(4, [](Rank, Communicator& c,
                               const LentSpan& data) { return c.all_reduce(data, ReduceOp::sum); }),
            "");
  EXPECT_EQ(leave_behind(2,
                         [](Rank rank, Communicator& c, const LentSpan& data) {
                           return rank == 0 ? c.recv(data, 1, 7) : c.send(data, 0, 7);
                         }),
            "");
  EXPECT_EQ(leave_behind(3, [](Rank, Communicator& c, const LentSpan&) { return c.barrier(); }),
            "");
}

TEST(Communicator, AReceiveThatNobodyAnswersKeepsNoRankFromLeaving) {
  LocalJob job(2);
  std::vector<float> there(100'000), back(100'000);
  const Work first = job.on(0).recv(lend(there), 1, 1);
  const Work second = job.on(1).recv(lend(back), 0, 1);
  const Work any = job.on(1).recv_any(lend(back), 2);
  std::thread other([&] { job.leave(0); });
  job.leave(1);
  other.join();
  ASSERT_TRUE(first.done() && second.done() && any.done());
  for (const Work& work : {first, second, any}) EXPECT_NE(work.error(), nullptr);
}

TEST(Communicator, ARankThatLeavesByAnExceptionEndsOperationsInFlight) {
  LocalJob job(2);
  std::vector<float> data(100'000);
  const Work lost = job.on(0).all_reduce(lend(data), ReduceOp::sum);
  try {
    struct Leave {
      LocalJob& job;
      ~Leave() { job.leave(0); }
    } const leave{job};
    throw std::runtime_error("the loss is not a number");
  } catch (const std::runtime_error&) {
  }
  ASSERT_TRUE(lost.done());
  EXPECT_NE(lost.error(), nullptr);
}

/// Runs `body` in a forked child, and returns true if it returned true there within a minute.
bool in_forked_child(const std::function<bool()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);  // A child that hangs ends by a signal.
    ::_exit(body() ? 0 : 1);
  }
  int status = -1;
  return child > 0 && ::waitpid(child, &status, 0) == child && status == 0;
}

TEST(Communicator, AForkedChildCannotUseItNorHangsWhenItEndsIt) {
  LocalJob job(2);
  std::vector<float> data(1000, 1.0f);
  EXPECT_TRUE(in_forked_child([&] {
    std::string refused;
    try {
      job.on(1).all_reduce(lend(data), ReduceOp::sum);
    } catch (const Exception& error) {
      refused = error.what();
    }
    job.leave(1);
    return refused.find("forked from rank 1") != std::string::npos;
  }));
  const auto errors = job.run([](Rank, Communicator& c) {
    std::vector<float> ones(1000, 1.0f);
    c.all_reduce(lend(ones), ReduceOp::sum).wait();
    EXPECT_EQ(ones.back(), 2.0f);
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

/// A program may read its tensors after the barrier, as with Gloo and NCCL.
TEST(Communicator, ABarrierCompletesAfterEarlierCollectives) {
  LocalJob job(4);
  const auto errors = job.run([](Rank, Communicator& c) {
    for (int round = 0; round < 20; ++round) {
      std::vector<float> a(500'000, 1.0f), b(500'000, 2.0f);
      const Work first = c.all_reduce(lend(a), ReduceOp::sum);
      const Work second = c.broadcast(lend(b), 3);
      const Work barrier = c.barrier();
      const Work next = c.barrier();
      barrier.wait();
      EXPECT_TRUE(first.done() && second.done());
      next.wait();
      first.wait();
      second.wait();
    }
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

}  // namespace
}  // namespace gradwire::test
