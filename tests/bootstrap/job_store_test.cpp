#include "gradwire/bootstrap/store/job_store.h"

#include <set>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include "gradwire/bootstrap/handshake/handshake.h"
#include "tests/support/host.h"
#include "tests/support/start_jobs.h"

namespace gradwire::bootstrap {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using test::free_port;
using test::job_of;
using testing::AllOf;
using testing::HasSubstr;

Result<std::unique_ptr<JobStore>> open_as(Rank rank, int world_size, std::uint16_t port,
                                          Duration timeout = seconds(30)) {
  return JobStore::open(std::make_shared<net::KernelNetwork>(), job_of(rank, world_size, port),
                        net::Deadline::after(test::kClock, timeout));
}

/// The stores of all ranks, rank 0's first. Rank 0's is closed last, because it waits for the
/// others.
struct Ends {
  std::vector<std::unique_ptr<JobStore>> of;

  explicit Ends(int world_size, std::uint16_t port = free_port()) {
    for (Rank rank = 0; rank < world_size; ++rank) {
      auto end = open_as(rank, world_size, port);
      EXPECT_TRUE(end) << end.error().message;
      of.push_back(std::move(*end));
    }
  }
  ~Ends() {
    while (!of.empty()) of.pop_back();
  }
  JobStore& operator[](std::size_t rank) { return *of[rank]; }
};

TEST(JobStore, KeepsWhatIsSetForAllRanks) {
  Ends ends(3);
  const std::string key("k\0\n\xff", 4);
  for (const std::string& value :
       {std::string("a"), std::string(), std::string("\0\1", 2), std::string(1 << 20, 'x')}) {
    ASSERT_TRUE(ends[1].set(key, value));
    EXPECT_EQ(ends[2].get(key, seconds(20)), value);
    EXPECT_EQ(ends[0].get(key, seconds(20)), value);
  }
  EXPECT_EQ(ends[0].count(), 1);
}

TEST(JobStore, WaitsUntilSomebodySets) {
  Ends ends(3);
  std::vector<std::thread> waiters;
  for (const std::size_t rank : {1, 2}) {
    waiters.emplace_back([&, rank] {
      EXPECT_TRUE(ends[rank].wait("later", seconds(60)));
      EXPECT_EQ(ends[rank].get("later", seconds(60)), "value");
    });
  }
  EXPECT_EQ(ends[0].has("later"), false);
  ASSERT_TRUE(ends[0].set("other", "not this"));
  ASSERT_TRUE(ends[0].set("later", "value"));
  for (std::thread& waiter : waiters) waiter.join();
  EXPECT_EQ(ends[1].has("later"), true);
}

TEST(JobStore, ThreadsThatWaitDoNotHoldOthersUp) {
  Ends ends(2);
  std::vector<std::thread> waiters;
  for (int i = 0; i < 5; ++i) {
    waiters.emplace_back(
        [&, i] { EXPECT_TRUE(ends[1].wait("key " + std::to_string(i), seconds(60))); });
  }
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(ends[1].set("key " + std::to_string(i), "v"));
  for (std::thread& waiter : waiters) waiter.join();
}

TEST(JobStore, MoreThreadsThanConnectionsTakeTurns) {
  Ends ends(1);
  std::vector<std::thread> threads;
  for (int i = 0; i < 3 * StoreServer::kMaxConnections; ++i) {
    threads.emplace_back([&] { EXPECT_TRUE(ends[0].add("sum", 1)); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(ends[0].get("sum", seconds(20)), std::to_string(threads.size()));
}

TEST(JobStore, AddIsAtomicAndADecimalNumber) {
  Ends ends(4);
  std::vector<std::thread> ranks;
  std::mutex mutex;
  std::set<std::int64_t> sums;
  for (std::size_t rank = 0; rank < 4; ++rank) {
    ranks.emplace_back([&, rank] {
      for (int i = 0; i < 50; ++i) {
        const auto sum = ends[rank].add("counter", 1);
        ASSERT_TRUE(sum) << sum.error().message;
        const std::lock_guard lock(mutex);
        EXPECT_TRUE(sums.insert(*sum).second) << *sum << " came twice";
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(ends[0].get("counter", seconds(20)), "200");
  EXPECT_EQ(ends[0].add("counter", -201), -1);
  ASSERT_TRUE(ends[0].set("word", "five"));
  const auto sum = ends[1].add("word", 1);
  ASSERT_FALSE(sum);
  EXPECT_EQ(sum.error().kind, ErrorKind::invalid_argument);
  EXPECT_THAT(sum.error().message, HasSubstr("\"word\""));
  EXPECT_EQ(ends[1].get("word", seconds(20)), "five");
}

TEST(JobStore, CompareSetAppendAndErase) {
  Ends ends(2);
  EXPECT_EQ(ends[0].compare_set("k", "old", "new"), "old") << "there is none";
  EXPECT_EQ(ends[0].has("k"), false);
  EXPECT_EQ(ends[0].compare_set("k", "", "first"), "first");
  EXPECT_EQ(ends[1].compare_set("k", "", "second"), "first");
  EXPECT_EQ(ends[1].compare_set("k", "first", "second"), "second");
  ASSERT_TRUE(ends[0].append("k", " and third"));
  EXPECT_EQ(ends[1].get("k", seconds(20)), "second and third");
  EXPECT_EQ(ends[1].erase("k"), true);
  EXPECT_EQ(ends[0].erase("k"), false);
  EXPECT_EQ(ends[0].count(), 0);
}

TEST(JobStore, AppendsNoMoreThanAMessageCanHold) {
  Ends ends(2);
  const std::string part(9 << 20, 'x');
  ASSERT_TRUE(ends[1].append("k", part));
  const Status second = ends[1].append("k", part);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().kind, ErrorKind::invalid_argument);
  EXPECT_THAT(second.error().message, HasSubstr("more than 16 MiB"));
  EXPECT_EQ(ends[0].get("k", seconds(20)), part);
}

TEST(JobStore, EveryChangeWakesThoseWhoWait) {
  Ends ends(2);
  const std::vector<std::function<void(const std::string&)>> changes = {
      [&](const std::string& key) { EXPECT_TRUE(ends[0].set(key, "1")); },
      [&](const std::string& key) { EXPECT_TRUE(ends[0].add(key, 1)); },
      [&](const std::string& key) { EXPECT_TRUE(ends[0].append(key, "1")); },
      [&](const std::string& key) { EXPECT_TRUE(ends[0].compare_set(key, "", "1")); }};
  for (std::size_t i = 0; i < changes.size(); ++i) {
    const std::string key = "key " + std::to_string(i);
    std::thread waiter([&] { EXPECT_EQ(ends[1].get(key, seconds(60)), "1"); });
    changes[i](key);
    waiter.join();
  }
}

TEST(JobStore, TimesOutNamingTheKeyAndStaysUsable) {
  Ends ends(1);
  const auto value = ends[0].get("never", milliseconds(30));
  ASSERT_FALSE(value);
  EXPECT_EQ(value.error().kind, ErrorKind::timeout);
  EXPECT_THAT(value.error().message, HasSubstr("\"never\""));
  ASSERT_TRUE(ends[0].set("never", "said"));
  EXPECT_EQ(ends[0].get("never", seconds(20)), "said");
}

TEST(JobStore, RefusesWhatIsTooLarge) {
  Ends ends(1);
  EXPECT_FALSE(ends[0].set(std::string(kMaxStoreKeyBytes + 1, 'k'), "v"));
  EXPECT_FALSE(ends[0].set("k", std::string(kMaxStoreValueBytes + 1, 'v')));
  EXPECT_TRUE(ends[0].set(std::string(kMaxStoreKeyBytes, 'k'), "v"));
  Status status;
  const std::string value(kMaxStoreValueBytes, 'v');
  int taken = 0;
  while ((status = ends[0].set("key " + std::to_string(taken), value))) ++taken;
  EXPECT_EQ(taken, 15) << "of 16 MiB each, within 256 MiB";
  EXPECT_THAT(status.error().message, HasSubstr("full"));
}

TEST(JobStore, UnauthenticatedPeersAreRefused) {
  const std::uint16_t port = free_port();
  Ends ends(2, port);
  Job unauthenticated = job_of(1, 2, port);
  unauthenticated.secret = "a guess of the same length";
  const auto end = JobStore::open(std::make_shared<net::KernelNetwork>(), unauthenticated,
                                  net::Deadline::after(test::kClock, seconds(30)));
  ASSERT_FALSE(end);
  EXPECT_EQ(end.error().kind, ErrorKind::refused);
  Job larger = job_of(1, 3, port);
  const auto other = JobStore::open(std::make_shared<net::KernelNetwork>(), larger,
                                    net::Deadline::after(test::kClock, seconds(30)));
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().kind, ErrorKind::mismatch);
}

TEST(JobStore, AsksForASecretAndForAStoreOfItsOwn) {
  Job job = job_of(0, 2, free_port());
  job.secret.clear();
  const auto open = JobStore::open(std::make_shared<net::KernelNetwork>(), job,
                                   net::Deadline::after(test::kClock, seconds(1)));
  ASSERT_FALSE(open);
  EXPECT_THAT(open.error().message, AllOf(HasSubstr("gradwire run"), HasSubstr("GRADWIRE_SECRET")));
  job = job_of(0, 2, free_port());
  job.launcher_store = true;
  job.launcher = "torchrun";
  const auto second = JobStore::open(std::make_shared<net::KernelNetwork>(), job,
                                     net::Deadline::after(test::kClock, seconds(1)));
  ASSERT_FALSE(second);
  EXPECT_THAT(second.error().message, HasSubstr("torchrun already serves a store"));
}

TEST(JobStore, ListensOnTheNamedAddressAlone) {
  Job job = job_of(0, 1, free_port());
  job.master_address = "127.0.0.2";
  const auto store = JobStore::open(std::make_shared<net::KernelNetwork>(), job,
                                    net::Deadline::after(test::kClock, seconds(30)));
  ASSERT_TRUE(store) << store.error().message;
  EXPECT_TRUE(net::listen_on(*net::SocketAddress::of("127.0.0.1", job.master_port)));
  EXPECT_FALSE(net::listen_on(*net::SocketAddress::of("127.0.0.2", job.master_port)));
}

TEST(JobStore, IsBehindThePortThatTheRanksOfAHostShare) {
  const std::uint16_t port = free_port();
  std::vector<Job> jobs = test::whole_job(3, port);
  for (Job& job : jobs) job.port = port;
  std::vector<std::unique_ptr<JobStore>> ends;
  for (const Job& job : jobs) {
    ends.push_back(std::move(*JobStore::open(std::make_shared<net::KernelNetwork>(), job,
                                             net::Deadline::after(test::kClock, seconds(30)))));
  }
  // After the store rendezvous, the ranks also accept their mesh connections at that port.
  std::vector<Result<Mesh>> meshes(jobs.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    threads.emplace_back([&, i] {
      meshes[i] =
          bootstrap::connect(test::kNetwork, jobs[i], test::within(seconds(30)), ends[i].get());
    });
  }
  for (std::thread& thread : threads) thread.join();
  test::expect_connected(meshes);
  while (!ends.empty()) ends.pop_back();
}

TEST(JobStore, EndOfRankZeroIsAnErrorForThoseWhoWait) {
  Ends ends(2);
  std::thread waiter([&] {
    const auto value = ends[1].get("never", seconds(60));
    ASSERT_FALSE(value);
    EXPECT_EQ(value.error().kind, ErrorKind::disconnected);
    EXPECT_THAT(value.error().message, HasSubstr("rank 1 lost the job's store of rank 0 at"));
  });
  ends.of[0].reset();
  waiter.join();
  EXPECT_FALSE(ends[1].set("a", "b"));
}

TEST(JobStore, TheNextOneFollowsAtTheSamePort) {
  const std::uint16_t port = free_port();
  std::unique_ptr<JobStore> zero = std::move(*open_as(0, 2, port));
  std::unique_ptr<JobStore> one = std::move(*open_as(1, 2, port));
  ASSERT_TRUE(one->set("of the first", "x"));
  one.reset();
  // Rank 1 is early: the first store still exists, and must refuse it.
  std::thread early([&] {
    one = std::move(*open_as(1, 2, port));
    EXPECT_EQ(one->get("of the second", seconds(60)), "y");
    EXPECT_EQ(one->has("of the first"), false);
  });
  zero.reset();
  zero = std::move(*open_as(0, 2, port));
  ASSERT_TRUE(zero->set("of the second", "y"));
  early.join();
  one.reset();
}

TEST(JobStore, AForkedChildLeavesItAlone) {
  Ends ends(1);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const bool refused = !ends[0].set("k", "of the child");
    ends.of.clear();
    ::_exit(refused ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(ends[0].set("k", "of the parent"));
  EXPECT_EQ(ends[0].get("k", seconds(20)), "of the parent");
}

TEST(StoreRequest, IsDecodedAsEncoded) {
  const StoreRequest request = {.operation = StoreOperation::compare_set,
                                .wait_ms = 4'000'000'000u,
                                .key = std::string("k\0y", 3),
                                .value = "desired",
                                .expected = "expected"};
  const auto back = decode_store_request(encode(request));
  ASSERT_TRUE(back);
  EXPECT_EQ(back->operation, request.operation);
  EXPECT_EQ(back->wait_ms, request.wait_ms);
  EXPECT_EQ(back->key, request.key);
  EXPECT_EQ(back->value, request.value);
  EXPECT_EQ(back->expected, request.expected);
}

TEST(StoreRequest, OtherBytesAreRefused) {
  const std::string good =
      encode(StoreRequest{.operation = StoreOperation::set, .key = "key", .value = "value"});
  for (std::size_t size = 0; size < good.size(); ++size) {
    EXPECT_FALSE(decode_store_request(good.substr(0, size))) << size;
  }
  EXPECT_FALSE(decode_store_request(good + "x"));
  for (const char operation : {'\0', '\x0d', '\xff'}) {
    std::string bad = good;
    bad[0] = operation;
    EXPECT_FALSE(decode_store_request(bad));
  }
  for (std::size_t at = 5; at < 17; ++at) {
    std::string bad = good;
    bad[at] = '\xff';
    EXPECT_FALSE(decode_store_request(bad)) << at;
  }
  EXPECT_FALSE(decode_store_response(""));
  EXPECT_FALSE(decode_store_response("\x05"));
}

}  // namespace
}  // namespace gradwire::bootstrap
