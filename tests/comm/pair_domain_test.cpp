#include <csignal>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gradwire/comm/communicator.h"
#include "tests/support/error_of.h"
#include "tests/support/local_job.h"

/// A star of pairs: a server with rank 0 and workers, of which one is killed.
namespace gradwire::test {
namespace {

constexpr int kRanks = 4, kRounds = 20, kKilled = 2;
constexpr int kPush = 1, kPull = 2;

std::shared_ptr<Communicator> connect(const Job& job) {
  return Communicator::connect(job, {.failure_domain = FailureDomain::pair});
}

/// Sends values to the server and gets twice them back. Ends the process.
[[noreturn]] void work(const Job& job) {
  int status = 1;
  try {
    const auto communicator = connect(job);
    std::vector<float> values(100'000);
    bool right = true;
    for (int round = 0; round < kRounds; ++round) {
      if (job.rank == kKilled && round == kRounds / 4) ::kill(::getpid(), SIGKILL);
      values.assign(values.size(), static_cast<float>(job.rank * 100 + round));
      communicator->send(lend(values), 0, kPush).wait();
      communicator->recv(lend(values), 0, kPull).wait();
      right = right && values.back() == static_cast<float>(2 * (job.rank * 100 + round));
    }
    status = right ? 0 : 2;
  } catch (const std::exception&) {
  }
  ::_exit(status);
}

/// Serves one worker. Returns the error with which that ended.
std::string serve(Communicator& communicator, Rank worker) {
  return error_of([&] {
    std::vector<float> values(100'000);
    for (int round = 0; round < kRounds; ++round) {
      communicator.recv(lend(values), worker, kPush).wait();
      for (float& value : values) value *= 2;
      communicator.send(lend(values), worker, kPull).wait();
    }
  });
}

TEST(PairDomain, AKilledWorkerEndsItsOwnMessagesOnly) {
  const ReservedPort port;
  const std::vector<Job> jobs = local_jobs(kRanks, {}, port.number());
  std::vector<pid_t> workers;
  for (Rank rank = 1; rank < kRanks; ++rank) {
    workers.push_back(::fork());
    if (workers.back() == 0) work(jobs[static_cast<std::size_t>(rank)]);
  }
  {
    const auto communicator = connect(jobs[0]);
    std::vector<std::string> errors(kRanks);
    std::vector<std::thread> threads;
    for (Rank rank = 1; rank < kRanks; ++rank) {
      threads.emplace_back(
          [&, rank] { errors[static_cast<std::size_t>(rank)] = serve(*communicator, rank); });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(errors[1], "no error");
    EXPECT_THAT(errors[kKilled], testing::HasSubstr("rank 2"));
    EXPECT_EQ(errors[3], "no error");
    EXPECT_THAT(serve(*communicator, kKilled),
                testing::HasSubstr("no message can be exchanged with rank 2"));
    EXPECT_THAT(error_of([&] { communicator->barrier(); }),
                testing::HasSubstr("barrier over a communicator of pairs"));
    const std::vector<Rank> living{0, 1, 3};
    EXPECT_THAT(error_of([&] { communicator->subgroup(living); }),
                testing::HasSubstr("a subgroup over a communicator of pairs"));
    EXPECT_THAT(error_of([&] { communicator->abort_with(0, "test"); }),
                testing::HasSubstr("rank 0 cannot be aborted alone"));
  }
  for (std::size_t i = 0; i < workers.size(); ++i) {
    int status = -1;
    ASSERT_EQ(::waitpid(workers[i], &status, 0), workers[i]);
    const bool killed = static_cast<Rank>(i) + 1 == kKilled;
    EXPECT_EQ(killed ? WTERMSIG(status) : WEXITSTATUS(status), killed ? SIGKILL : 0) << i + 1;
  }
}

/// Nothing drives it, so that it would never end.
TEST(PairDomain, AnOperationAfterLeavingFails) {
  LocalJob job(2, {.failure_domain = FailureDomain::pair});
  job.on(0).leave_at_once("");
  std::vector<float> values(8);
  const Work late = job.on(0).recv(lend(values), 1, kPush);
  ASSERT_TRUE(late.done());
  EXPECT_THAT(late.error()->message, testing::HasSubstr("the communicator is closed"));
}

}  // namespace
}  // namespace gradwire::test
