// From the first process until all ranks are connected: a restarted rank joins, and a failed rank
// is named on every rank. The tests assert the reason, because a rank that is not told times out
// after a minute with another one.
#include <atomic>
#include <filesystem>
#include <future>
#include <optional>
#include <thread>

#include <gmock/gmock.h>
#include <sys/resource.h>

#include "gradwire/bootstrap/handshake/handshake_server.h"
#include "gradwire/bootstrap/served_start.h"
#include "gradwire/bootstrap/store/open_session.h"
#include "tests/bootstrap/rank_child.h"
#include "tests/support/host.h"

namespace gradwire::bootstrap {
namespace {

using std::chrono::seconds;
using test::free_port;
using test::job_of;
using test::RankChild;
using test::within;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

net::Deadline soon_enough() {
  return net::Deadline::after(test::kClock, seconds(30));
}

/// A rank that the test drives step by step, in place of connect().
class Puppet {
 public:
  explicit Puppet(const Job& job) : job_(job), listener_(listen_on_loopback()) {
    auto session = open_session(test::kNetwork, job_, claims_of(job_), soon_enough());
    EXPECT_TRUE(session) << session.error().message;
    start_.emplace(test::kNetwork, std::move(*session), job_, seconds(30));
  }

  /// Returns when all have joined.
  void join() {
    const RankEndpoint endpoint = {
        .host = "puppet", .machine = "its own", .rails = {{net::local_address(listener_), "lo"}}};
    const auto endpoints = start_->exchange_endpoints(endpoint, soon_enough());
    ASSERT_TRUE(endpoints) << endpoints.error().message;
  }

  ServedStart& start() { return *start_; }
  net::Socket& listener() { return listener_; }

  /// Closes its connections, as a killed process does.
  void die() {
    start_.reset();
    listener_.close();
  }

 private:
  static net::Socket listen_on_loopback() {
    return std::move(*net::listen_on(*net::SocketAddress::of("127.0.0.1", 0)));
  }

  Job job_;
  net::Socket listener_;
  std::optional<ServedStart> start_;
};

using Outcome = std::future<Result<Mesh>>;

Outcome start(const Job& job) {
  return std::async(std::launch::async,
                    [job] { return connect(test::kNetwork, job, within(seconds(60))); });
}

std::string reason_of(Outcome& outcome) {
  const auto mesh = outcome.get();
  return mesh ? "connected" : mesh.error().message;
}

TEST(StartUp, ARankThatIsKilledAndStartedAgainWhileOthersWaitJoins) {
  const std::uint16_t port = free_port();
  RankChild zero(job_of(0, 4, port));
  {
    RankChild one(job_of(1, 4, port));
    // Rank 2's place is taken by a session that sees when rank 1 has joined.
    const Job job = job_of(2, 4, port);
    auto session = open_session(test::kNetwork, job, claims_of(job), soon_enough());
    ASSERT_TRUE(session) << session.error().message;
    const RankEndpoint endpoint = {.host = "spy",
                                   .rails = {{*net::SocketAddress::parse("127.0.0.1:1"), "lo"}}};
    std::vector<Rank> missing;
    while (missing != std::vector<Rank>{3}) {
      const auto response = session->ask(
          {.operation = StoreOperation::exchange, .wait_ms = 10, .value = encode(endpoint)});
      ASSERT_TRUE(response) << response.error().message;
      missing = decode_missing_ranks(response->value).ranks;
    }
    one.kill();
  }
  RankChild one(job_of(1, 4, port));
  RankChild two(job_of(2, 4, port));
  RankChild three(job_of(3, 4, port));
  for (RankChild* rank : {&zero, &one, &two, &three}) EXPECT_EQ(rank->outcome(), "connected");
}

TEST(StartUp, ARankThatDiesOnceAllHaveJoinedIsNamedOnEveryRank) {
  const std::uint16_t port = free_port();
  Outcome zero = start(job_of(0, 3, port));
  Outcome two = start(job_of(2, 3, port));
  Puppet one(job_of(1, 3, port));
  one.join();
  one.die();
  for (Outcome* outcome : {&zero, &two}) {
    EXPECT_THAT(reason_of(*outcome),
                AllOf(HasSubstr("rank 1 (host puppet"), Not(HasSubstr("does a firewall"))));
  }
}

TEST(StartUp, TheReasonOfTheRankThatFailedIsToldToEveryRank) {
  const std::uint16_t port = free_port();
  Outcome zero = start(job_of(0, 3, port));
  Outcome two = start(job_of(2, 3, port));
  Puppet one(job_of(1, 3, port));
  one.join();
  const Error own = {ErrorKind::system, "no paper in the printer"};
  EXPECT_EQ(one.start().fail(own).message, own.message);
  one.die();
  for (Outcome* outcome : {&zero, &two}) {
    EXPECT_THAT(reason_of(*outcome),
                AllOf(HasSubstr("rank 1 (host puppet"),
                      HasSubstr("failed while the job started: no paper in the printer")));
  }
}

/// Allows `more` descriptors beyond the currently open ones.
void allow_only(std::ptrdiff_t more) {
  const auto open = std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
  const auto max_descriptors = static_cast<rlim_t>(open + more);
  const rlimit limit = {max_descriptors, max_descriptors};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

TEST(StartUp, TooFewDescriptorsOfOneRankAreNamedOnEveryRank) {
  const std::uint16_t port = free_port();
  RankChild zero(job_of(0, 3, port));
  // Enough to join (32 to spare and 6), but not for the connections.
  RankChild one(job_of(1, 3, port), seconds(60), [] { allow_only(32 + 6 + 2); });
  RankChild two(job_of(2, 3, port));
  EXPECT_THAT(one.outcome(), HasSubstr("file descriptors"));
  for (RankChild* other : {&zero, &two}) {
    EXPECT_THAT(other->outcome(), AllOf(HasSubstr("rank 1 ("), HasSubstr("file descriptors")));
  }
}

// A bit flip in a handshake has the same effect.
TEST(StartUp, AHandshakeThatFailsIsNamedOnEveryRank) {
  const std::uint16_t port = free_port();
  Outcome zero = start(job_of(0, 3, port));
  Outcome two = start(job_of(2, 3, port));
  Puppet one(job_of(1, 3, port));
  one.join();
  // It answers rank 2 with another secret than the published one.
  std::atomic<bool> over = false;
  std::thread answering([&] {
    HandshakeServer server(
        test::kClock, listeners_of(std::move(one.listener())),
        {.credentials = one_secret({.secret = "another", .purpose = "mesh 0"}), .world_size = 3},
        [](const Claims&) { return Verdict::accepted; }, [](const AuthenticatedConnection&) {});
    net::PollSet set;
    while (!over) {
      set.clear();
      set.wait(server.watch(set, net::Deadline::after(test::kClock, std::chrono::milliseconds(5))));
      ASSERT_TRUE(server.advance(set));
    }
  });
  EXPECT_THAT(reason_of(two), AllOf(HasSubstr("rank 1 (host puppet"), HasSubstr("wrong secret"),
                                    HasSubstr("corrupted in transit")));
  EXPECT_THAT(reason_of(zero),
              AllOf(HasSubstr("rank 2 ("), HasSubstr("failed while the job started"),
                    HasSubstr("rank 1 (host puppet"), HasSubstr("corrupted in transit")));
  over = true;
  answering.join();
}

TEST(StartUp, AnotherWorldSizeEndsTheStartOnEveryRank) {
  const std::uint16_t port = free_port();
  Outcome zero = start(job_of(0, 3, port));
  Outcome one = start(job_of(1, 3, port));
  Outcome two = start(job_of(2, 4, port));
  for (Outcome* outcome : {&zero, &one, &two}) {
    const auto mesh = outcome->get();
    ASSERT_FALSE(mesh);
    EXPECT_EQ(mesh.error().kind, ErrorKind::mismatch);
    EXPECT_THAT(mesh.error().message,
                AllOf(HasSubstr("rank 2 (host "), HasSubstr("world size of 4, rank 0 with 3"),
                      HasSubstr("WORLD_SIZE")));
  }
}

TEST(StartUp, ARankThatExistsTwiceEndsTheStartOnEveryRank) {
  const std::uint16_t port = free_port();
  std::vector<Outcome> outcomes;
  for (const Rank rank : {0, 1, 1}) outcomes.push_back(start(job_of(rank, 3, port)));
  for (Outcome& outcome : outcomes) {
    const auto mesh = outcome.get();
    ASSERT_FALSE(mesh);
    EXPECT_EQ(mesh.error().kind, ErrorKind::invalid_argument);
    EXPECT_THAT(mesh.error().message,
                testing::ContainsRegex("already joined as rank 1: rank 1 \\(host .*, 127.0.0.1:.*"
                                       "and rank 1 \\(host .*, 127.0.0.1:"));
  }
}

TEST(StartUp, AWrongSecretEndsOnlyItsOwnStart) {
  const std::uint16_t port = free_port();
  Outcome zero = start(job_of(0, 2, port));
  Job unauthenticated = job_of(1, 2, port);
  unauthenticated.secret = "another";
  Outcome wrong = start(unauthenticated);
  EXPECT_THAT(reason_of(wrong), HasSubstr("wrong secret"));
  Outcome one = start(job_of(1, 2, port));
  EXPECT_EQ(reason_of(one), "connected");
  EXPECT_EQ(reason_of(zero), "connected");
}

TEST(StartUp, ARankOfAnotherJobEndsOnlyItsOwnStart) {
  const std::uint16_t port = free_port();
  Job zero_of_a = job_of(0, 2, port), one_of_a = job_of(1, 2, port), one_of_b = job_of(1, 3, port);
  zero_of_a.job_id = one_of_a.job_id = "a";
  one_of_b.job_id = "b";
  Outcome zero = start(zero_of_a);
  Outcome wrong = start(one_of_b);
  EXPECT_THAT(reason_of(wrong), AllOf(HasSubstr("rank 1 (host "), HasSubstr("job id \"b\""),
                                      HasSubstr("job id \"a\""), HasSubstr("GRADWIRE_JOB_ID")));
  Outcome one = start(one_of_a);
  EXPECT_EQ(reason_of(one), "connected");
  EXPECT_EQ(reason_of(zero), "connected");
}

TEST(StartUp, RankZerosOwnFailureIsToldToThoseWhoWait) {
  const std::uint16_t port = free_port();
  Job job = job_of(0, 2, port);
  const auto taken = net::listen_on(*net::SocketAddress::of("127.0.0.1", 0));
  job.port = net::local_address(*taken).port();
  Outcome one = start(job_of(1, 2, port));
  Outcome zero = start(job);
  EXPECT_THAT(reason_of(zero), HasSubstr("another program already does"));
  EXPECT_THAT(reason_of(one), AllOf(HasSubstr("rank 0 ("), HasSubstr("failed while the job"),
                                    HasSubstr("another program already does")));
}

}  // namespace
}  // namespace gradwire::bootstrap
