#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/base/error.h"
#include "gradwire/comm/communicator.h"
#include "tests/support/local_job.h"

/// Messages of a rank to itself, in a job of one rank and beside others.
namespace gradwire::test {
namespace {

using testing::HasSubstr;
using namespace std::chrono_literals;

using Values = std::vector<float>;

class SelfMessages : public testing::TestWithParam<int> {
 protected:
  int ranks() const { return GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(Ranks, SelfMessages, testing::Values(1, 3));

TEST_P(SelfMessages, ArriveInTheOrderInWhichTheyWereSent) {
  LocalJob job(ranks());
  expect_no_errors(job.run([](Rank rank, Communicator& c) {
    Values first(3, 1), second(200'000, 2), other(5, 3), none;
    Values in_first(3), in_second(200'000), in_other(5);
    const Work early = c.recv(lend(in_first), rank, 4);
    EXPECT_FALSE(early.done());
    c.send(lend(first), rank, 4).wait();
    c.send(lend(second), rank, 4).wait();
    c.send(lend(none), rank, 4).wait();
    second.assign(second.size(), -1);  // The message is a copy.
    c.send(lend(other), rank, 5).wait();
    c.recv(lend(in_other), rank, 5).wait();
    early.wait();
    c.recv(lend(in_second), rank, 4).wait();
    c.recv(lend(none), rank, 4).wait();
    EXPECT_EQ(in_first, Values(3, 1));
    EXPECT_EQ(in_second, Values(200'000, 2));
    EXPECT_EQ(in_other, Values(5, 3));
    EXPECT_EQ(early.source(), -1);
  }));
}

TEST_P(SelfMessages, MeetReceivesFromAnyRank) {
  LocalJob job(ranks());
  expect_no_errors(job.run([](Rank rank, Communicator& c) {
    Values data(4, static_cast<float>(rank));
    c.send(lend(data), rank, 1).wait();
    if (rank != 0) return c.send(lend(data), 0, 1).wait();
    std::vector<int> seen(static_cast<std::size_t>(c.size()));
    for (int i = 0; i < c.size(); ++i) {
      Values in(4, -1);
      const Work work = c.recv_any(lend(in), 1);
      work.wait();
      EXPECT_EQ(in, Values(4, static_cast<float>(work.source())));
      ++seen[static_cast<std::size_t>(work.source())];
    }
    EXPECT_EQ(seen, std::vector<int>(seen.size(), 1));
  }));
}

TEST_P(SelfMessages, StartTogetherWithOthers) {
  LocalJob job(ranks());
  expect_no_errors(job.run([](Rank rank, Communicator& c) {
    const Rank next = (rank + 1) % c.size();
    const Rank before = (rank + c.size() - 1) % c.size();
    Values mine(10, 1), theirs(10, 2), in_mine(10), in_theirs(10);
    c.coalesced([&](Communicator& together) {
       together.recv(lend(in_theirs), before, 1);
       together.recv(lend(in_mine), rank, 0);
       together.send(lend(mine), rank, 0);
       together.send(lend(theirs), next, 1);
     }).wait();
    EXPECT_EQ(in_mine, Values(10, 1));
    EXPECT_EQ(in_theirs, Values(10, 2));
  }));
}

TEST_P(SelfMessages, OfASubgroupAreItsOwn) {
  LocalJob job(ranks());
  expect_no_errors(job.run([](Rank rank, Communicator& c) {
    const Rank last = c.size() - 1;
    if (rank != last) return;
    const std::vector<Rank> members = {last};
    const auto group = c.subgroup(members);
    Values in_all(1, 1), in_group(1, 2), in(1);
    c.send(lend(in_all), last).wait();
    group->send(lend(in_group), 0).wait();
    group->recv(lend(in), 0).wait();
    EXPECT_EQ(in, in_group);
    c.recv(lend(in), last).wait();
    EXPECT_EQ(in, in_all);
  }));
}

TEST_P(SelfMessages, WakeAThreadThatWaits) {
  LocalJob job(ranks());
  Communicator& c = job.on(0);
  for (int i = 0; i < 200; ++i) {
    Values data(8, static_cast<float>(i)), in(8);
    const Work receive = c.recv(lend(in), 0);
    std::thread waiter([&] { receive.wait(); });
    receive.wait_for(std::chrono::microseconds(10 * i));  // The waiter spins, or already sleeps.
    c.send(lend(data), 0).wait();
    waiter.join();
    EXPECT_EQ(in, data);
  }
}

TEST_P(SelfMessages, OfAnotherSizeEndTheCommunicator) {
  LocalJob job(ranks());
  Communicator& c = job.on(0);
  Values data(8), in(9);
  c.send(lend(data), 0, 3).wait();
  try {
    c.recv(lend(in), 0, 3).wait();
    FAIL();
  } catch (const Exception& error) {
    EXPECT_EQ(error.kind(), ErrorKind::mismatch);
    EXPECT_THAT(error.what(), HasSubstr("rank 0 sent itself 8 float32 with tag 3, but receives 9"));
  }
}

TEST_P(SelfMessages, ThatNeverComeTimeOut) {
  CommunicatorOptions options;
  options.operation_timeout = 50ms;
  LocalJob job(ranks(), options);
  Values in(2);
  try {
    job.on(0).recv(lend(in), 0, 3).wait();
    FAIL();
  } catch (const Exception& error) {
    EXPECT_EQ(error.kind(), ErrorKind::timeout);
    EXPECT_THAT(error.what(), HasSubstr("the rank has not sent itself a message with this tag"));
  }
}

TEST_P(SelfMessages, ThatNeverComeKeepNoRankFromLeaving) {
  LocalJob job(ranks());
  Values in(2);
  const Work receive = job.on(0).recv(lend(in), 0, 3);
  job.leave(0);
  try {
    receive.wait();
    FAIL();
  } catch (const Exception& error) {
    EXPECT_EQ(error.kind(), ErrorKind::aborted);
  }
}

}  // namespace
}  // namespace gradwire::test
