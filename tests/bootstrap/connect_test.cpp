#include "gradwire/bootstrap/connect.h"

#include <array>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <mutex>
#include <set>
#include <sstream>
#include <thread>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include "gradwire/bootstrap/store/open_session.h"
#include "gradwire/net/socket.h"
#include "tests/bootstrap/usual_descriptors.h"
#include "tests/support/host.h"
#include "tests/support/start_jobs.h"

namespace gradwire::bootstrap {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using test::connect_all;
using test::expect_connected;
using test::free_port;
using test::job_of;
using test::whole_job;
using test::within;
using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;

class RendezvousOf : public testing::TestWithParam<int> {};

TEST_P(RendezvousOf, RanksEndUpConnectedEachWithEach) {
  const test::UsualDescriptors usual;
  auto meshes = connect_all(whole_job(GetParam(), free_port()));
  expect_connected(meshes);
}

INSTANTIATE_TEST_SUITE_P(Worlds, RendezvousOf, testing::Values(2, 3, 5, 16, 64),
                         testing::PrintToStringParamName());

TEST(Connect, NamesPeersForPeople) {
  const auto meshes = connect_all(whole_job(2, free_port()));
  ASSERT_TRUE(meshes[0]);
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  EXPECT_THAT(
      meshes[0]->transport->describe({1, 0}),
      AllOf(HasSubstr(fmt::format("rank 1 (host {}, 127.0.0.1:", host)), HasSubstr(" over lo)")));
}

TEST(Connect, TimesOutNamingAllMissingRanksOnEveryRank) {
  const std::uint16_t port = free_port();
  const auto meshes =
      connect_all({job_of(0, 5, port), job_of(1, 5, port), job_of(4, 5, port)}, within(seconds(1)));
  for (const auto& mesh : meshes) {
    ASSERT_FALSE(mesh);
    EXPECT_EQ(mesh.error().kind, ErrorKind::timeout);
    // A rank may hear it from rank 0.
    EXPECT_THAT(mesh.error().message,
                EndsWith(fmt::format("ranks 2, 3 have not joined at 127.0.0.1:{} within 1 s; are "
                                     "they started, and can they reach that address?",
                                     port)));
  }
}

TEST(Connect, ARankThatEndedWhileOthersGatheredIsTheReason) {
  const std::uint16_t port = free_port();
  Result<Mesh> mesh = failure(ErrorKind::system, "not run");
  std::thread zero([&] { mesh = connect(test::kNetwork, job_of(0, 3, port), within(seconds(2))); });
  for (const Rank rank : {1, 2}) {
    const Job job = job_of(rank, 3, port);
    const auto joined = open_session(test::kNetwork, job, claims_of(job),
                                     net::Deadline::after(test::kClock, seconds(20)));
    ASSERT_TRUE(joined) << joined.error().message;
  }
  zero.join();
  ASSERT_FALSE(mesh);
  EXPECT_THAT(mesh.error().message,
              testing::MatchesRegex("rank 1 .*, rank 2 .* ended before all ranks had joined at "
                                    ".*, and were not started again within 2 s: .*"));
}

TEST(Connect, WithoutRankZeroSaysWhereItWasExpected) {
  const std::uint16_t port = free_port();
  const auto mesh = connect(test::kNetwork, job_of(1, 2, port), within(milliseconds(300)));
  ASSERT_FALSE(mesh);
  EXPECT_EQ(mesh.error().kind, ErrorKind::timeout);
  EXPECT_THAT(mesh.error().message,
              HasSubstr(fmt::format("rank 0 has not joined at 127.0.0.1:{} within 0.3 s", port)));
}

TEST(Connect, WaitsForARankZeroThatStartsLater) {
  const std::uint16_t port = free_port();
  Result<Mesh> first = failure(ErrorKind::system, "not run");
  std::thread early(
      [&] { first = connect(test::kNetwork, job_of(1, 2, port), within(seconds(60))); });
  // When its first attempt arrives here, the early rank has tried and failed at least once.
  {
    auto listener = net::listen_on(*net::SocketAddress::of("127.0.0.1", port));
    ASSERT_TRUE(listener);
    ASSERT_TRUE(net::wait_for(*listener, POLLIN, net::Deadline::after(test::kClock, seconds(20))));
    ASSERT_TRUE(*net::accept_one(*listener));
  }
  auto second = connect(test::kNetwork, job_of(0, 2, port), within(seconds(60)));
  early.join();
  EXPECT_TRUE(first) << first.error().message;
  EXPECT_TRUE(second) << second.error().message;
}

TEST(Connect, WrongSecretIsRefusedAndNamesTheRemedy) {
  const std::uint16_t port = free_port();
  Job unauthenticated = job_of(1, 2, port);
  unauthenticated.secret = "another";
  const auto meshes =
      connect_all({job_of(0, 2, port), unauthenticated}, within(milliseconds(1500)));
  ASSERT_FALSE(meshes[0]);
  EXPECT_EQ(meshes[0].error().kind, ErrorKind::timeout);
  EXPECT_THAT(meshes[0].error().message, HasSubstr("rank 1 has not joined"));
  ASSERT_FALSE(meshes[1]);
  EXPECT_EQ(meshes[1].error().kind, ErrorKind::refused);
  EXPECT_THAT(meshes[1].error().message,
              HasSubstr("wrong secret: give every rank the same GRADWIRE_SECRET; or another job "
                        "listens there"));
}

TEST(Connect, ATakenPortIsNamedWithTheRemedy) {
  const auto taken = net::listen_on(*net::SocketAddress::of("127.0.0.1", 0));
  const std::uint16_t port = net::local_address(*taken).port();
  const auto mesh = connect(test::kNetwork, job_of(0, 2, port), within(seconds(5)));
  ASSERT_FALSE(mesh);
  EXPECT_EQ(mesh.error().kind, ErrorKind::invalid_argument);
  EXPECT_THAT(mesh.error().message,
              AllOf(HasSubstr(fmt::format("127.0.0.1:{}", port)), HasSubstr("choose another port"),
                    HasSubstr("MASTER_PORT")));
}

TEST(Connect, RankZeroIsTheFirstToSayThatAnotherJobHasThePort) {
  const std::uint16_t port = free_port();
  Job other = job_of(0, 2, port);
  other.secret = "of the other job";
  std::thread before([&] { (void)connect(test::kNetwork, other, within(seconds(3))); });
  const auto deadline = net::Deadline::after(test::kClock, seconds(5));
  while (!net::connect_to(*net::SocketAddress::of("127.0.0.1", port), deadline)) continue;
  std::mutex mutex;
  std::vector<std::string> errors;
  std::vector<std::thread> ranks;
  for (const Rank rank : {1, 0}) {
    ranks.emplace_back([&, rank] {
      const auto mesh = connect(test::kNetwork, job_of(rank, 2, port), within(seconds(5)));
      const std::lock_guard lock(mutex);
      errors.push_back(mesh ? "" : mesh.error().message);
    });
  }
  for (std::thread& rank : ranks) rank.join();
  before.join();
  EXPECT_THAT(errors, testing::ElementsAre(HasSubstr("choose another port"),
                                           HasSubstr("or another job listens there")));
}

TEST(Connect, WithoutASecretNamesTheVariable) {
  Job job = job_of(0, 2, free_port());
  job.secret.clear();
  const auto mesh = connect(test::kNetwork, job, within(seconds(5)));
  ASSERT_FALSE(mesh);
  EXPECT_THAT(mesh.error().message, HasSubstr("GRADWIRE_SECRET"));
}

TEST(Connect, AnUnknownInterfaceListsThoseThereAre) {
  const std::uint16_t port = free_port();
  auto jobs = whole_job(2, port);
  for (Job& job : jobs) job.interface = "nosuch";
  const auto meshes = connect_all(jobs, within(seconds(5)));
  ASSERT_FALSE(meshes[0]);
  EXPECT_EQ(meshes[0].error().kind, ErrorKind::invalid_argument);
  EXPECT_THAT(meshes[0].error().message,
              AllOf(HasSubstr("\"nosuch\""), HasSubstr("lo (127.0.0.1")));
}

TEST(Connect, NextCommunicatorOfTheSameJobFollowsAtTheSamePort) {
  constexpr int kRanks = 4;
  const std::uint16_t port = free_port();
  std::vector<std::thread> threads;
  std::mutex mutex;
  std::vector<std::string> errors;
  for (Rank rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      for (int turn = 0; turn < 10; ++turn) {
        const auto mesh = connect(test::kNetwork, job_of(rank, kRanks, port), within(seconds(30)));
        const std::lock_guard lock(mutex);
        if (!mesh) errors.push_back(mesh.error().message);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(errors, testing::IsEmpty());
}

/// Endpoints on which this process listens, as in /proc: "0100007F:6D60", address and port.
std::set<std::string> listening_ends() {
  std::set<std::string> own;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(entry, gone).string();
    if (target.starts_with("socket:[")) own.insert(target.substr(8, target.size() - 9));
  }
  std::set<std::string> ends;
  for (const char* table : {"/proc/self/net/tcp", "/proc/self/net/tcp6"}) {
    std::ifstream lines(table);
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      std::vector<std::string> fields(std::istream_iterator<std::string>(words), {});
      const bool listens = fields.size() > 9 && fields[3] == "0A" && own.contains(fields[9]);
      if (listens) ends.insert(fields[1]);
    }
  }
  return ends;
}

std::set<std::string> listening_addresses() {
  std::set<std::string> addresses;
  for (const std::string& end : listening_ends()) addresses.insert(end.substr(0, end.find(':')));
  return addresses;
}

TEST(Connect, ListensOnTheChosenAddressesOnly) {
  // Rank 0 serves at the master's address, and waits for a rank that never joins.
  Job job = job_of(0, 2, free_port());
  job.master_address = "127.0.0.2";
  std::set<std::string> seen;
  std::atomic<bool> done = false;
  std::thread rank([&] {
    EXPECT_FALSE(connect(test::kNetwork, job, within(milliseconds(500))));
    done = true;
  });
  while (!done) seen.merge(listening_addresses());
  rank.join();
  EXPECT_THAT(seen, testing::UnorderedElementsAre("0200007F", "0100007F"));
}

TEST(Connect, TheInterfaceDecidesTheAddress) {
  auto jobs = whole_job(2, free_port());
  for (Job& job : jobs) job.interface = "lo";
  auto meshes = connect_all(jobs);
  expect_connected(meshes);
  EXPECT_EQ(meshes[0]->endpoints[1].rails[0].interface, "lo");
  EXPECT_EQ(meshes[0]->endpoints[1].rails[0].address.host(), "127.0.0.1");
}

std::vector<Job> job_behind_one_port(int world_size, std::uint16_t port) {
  auto jobs = whole_job(world_size, port);
  for (Job& job : jobs) job.port = port;
  return jobs;
}

class ConnectBehindOnePort : public testing::TestWithParam<int> {};

TEST_P(ConnectBehindOnePort, RanksEndUpConnectedEachWithEach) {
  const test::UsualDescriptors usual;
  auto meshes = connect_all(job_behind_one_port(GetParam(), free_port()));
  expect_connected(meshes);
}

INSTANTIATE_TEST_SUITE_P(Worlds, ConnectBehindOnePort, testing::Values(2, 5, 32),
                         testing::PrintToStringParamName());

TEST(Connect, BehindOnePortNothingElseListens) {
  constexpr int kTurns = 5,
                kMaxTurns = 500;  // More on a busy machine, where samples are too rare.
  const std::uint16_t port = free_port();
  std::vector<Result<Mesh>> meshes;
  std::atomic<bool> done = false, seen_any = false;
  std::thread ranks([&] {
    for (int turn = 0; turn < kTurns || (!seen_any && turn < kMaxTurns); ++turn) {
      meshes = connect_all(job_behind_one_port(4, port));
    }
    done = true;
  });
  std::set<std::string> seen;
  while (!done) {
    seen.merge(listening_ends());
    seen_any = !seen.empty();
  }
  ranks.join();
  expect_connected(meshes);
  EXPECT_THAT(seen, testing::ElementsAre(fmt::format("0100007F:{:04X}", port)));
}

TEST(Connect, BehindOnePortTheNextCommunicatorFollows) {
  constexpr int kRanks = 4;
  const std::uint16_t port = free_port();
  std::vector<std::thread> threads;
  std::mutex mutex;
  std::vector<std::string> errors;
  for (const Job& job : job_behind_one_port(kRanks, port)) {
    threads.emplace_back([&, job] {
      for (int turn = 0; turn < 10; ++turn) {
        const auto mesh = connect(test::kNetwork, job, within(seconds(30)));
        const std::lock_guard lock(mutex);
        if (!mesh) errors.push_back(mesh.error().message);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(errors, testing::IsEmpty());
}

TEST(Connect, OnePortThatIsTakenIsNamed) {
  const auto taken = net::listen_on(*net::SocketAddress::of("127.0.0.1", 0));
  const std::uint16_t port = net::local_address(*taken).port();
  const auto mesh = connect(test::kNetwork, job_behind_one_port(2, port)[0], within(seconds(5)));
  ASSERT_FALSE(mesh);
  EXPECT_EQ(mesh.error().kind, ErrorKind::invalid_argument);
  EXPECT_THAT(mesh.error().message,
              AllOf(HasSubstr(fmt::format("127.0.0.1:{}", port)), HasSubstr("choose another port"),
                    HasSubstr("GRADWIRE_PORT")));
}

TEST(Connect, RanksOfOneMachineKnowIt) {
  const auto meshes = connect_all(whole_job(3, free_port()));
  ASSERT_TRUE(meshes[2]);
  EXPECT_THAT(machine_numbers(meshes[2]->endpoints), testing::ElementsAre(0, 0, 0));
  EXPECT_EQ(meshes[2]->transport->rails(0), 1);
}

TEST(Connect, RanksOfOneMachineShareMemoryUnlessOneForbidsIt) {
  auto jobs = whole_job(3, free_port());
  jobs[1].shared_memory = false;
  auto meshes = connect_all(jobs);
  expect_connected(meshes);
  for (const auto& [from, to] : {std::pair<Rank, Rank>{0, 1}, {1, 0}, {1, 2}, {2, 1}}) {
    EXPECT_TRUE(meshes[static_cast<std::size_t>(from)]->transport->needs_checksums({to, 0}));
  }
  EXPECT_FALSE(meshes[0]->transport->needs_checksums({2, 0}));
  EXPECT_FALSE(meshes[2]->transport->needs_checksums({0, 0}));
}

}  // namespace
}  // namespace gradwire::bootstrap
