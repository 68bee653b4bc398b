#include "gradwire/bootstrap/store/store_server.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include "gradwire/bootstrap/handshake/handshake.h"
#include "gradwire/bootstrap/served_start.h"
#include "gradwire/bootstrap/store/open_session.h"
#include "gradwire/bootstrap/store/store_protocol.h"
#include "gradwire/bootstrap/store/store_session.h"
#include "tests/support/host.h"
#include "tests/support/start_jobs.h"

namespace gradwire::bootstrap {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using test::job_of;
using testing::AllOf;
using testing::HasSubstr;

constexpr int kWorldSize = 4;
const SharedSecret kShared = {.secret = "the secret of this test", .purpose = kStorePurpose};

net::Deadline soon_enough() {
  return net::Deadline::after(test::kClock, seconds(20));
}

struct Serving {
  net::SocketAddress address;
  std::unique_ptr<StoreServer> server;
};

/// Serves the start of a job, unless the options say otherwise.
Serving start_server(StoreServer::Options options = {.credentials = one_secret(kShared),
                                                     .world_size = kWorldSize,
                                                     .starts_job = ""}) {
  auto socket = net::listen_on(*net::SocketAddress::of("127.0.0.1", 0));
  const net::SocketAddress address = net::local_address(*socket);
  auto listener = std::make_unique<SocketListener>(std::move(*socket));
  return {address,
          std::move(*StoreServer::start(test::kNetwork, std::move(listener), std::move(options)))};
}

Result<StoreSession> connect(const Serving& serving, const Claims& claims,
                             Duration timeout = seconds(20)) {
  return open_session(test::kNetwork, job_of(claims.from, kWorldSize, serving.address.port()),
                      claims, net::Deadline::after(test::kClock, timeout));
}

Result<StoreSession> connect(const Serving& serving, Rank rank, Duration timeout = seconds(20)) {
  return connect(serving, {.from = rank, .world_size = kWorldSize}, timeout);
}

/// A rank on its way through the start.
struct Starting {
  Starting(const Serving& serving, Rank rank)
      : job(job_of(rank, kWorldSize, serving.address.port())),
        steps(test::kNetwork, std::move(*connect(serving, rank)), job, seconds(20)) {}

  Result<std::vector<RankEndpoint>> exchange(Duration timeout = seconds(20)) {
    const RankEndpoint endpoint = {.host = fmt::format("h{}", job.rank),
                                   .rails = {{*net::SocketAddress::parse("127.0.0.1:4711"), "lo"}}};
    return steps.exchange_endpoints(endpoint, net::Deadline::after(test::kClock, timeout));
  }

  Job job;
  ServedStart steps;
};

/// A process of rank 1 that joins and ends.
void join_and_end(const Serving& serving) {
  const RankEndpoint endpoint = {.host = "h1",
                                 .rails = {{*net::SocketAddress::parse("127.0.0.1:1"), "lo"}}};
  auto session = std::move(*connect(serving, 1));
  const auto response =
      session.ask({.operation = StoreOperation::exchange, .wait_ms = 1, .value = encode(endpoint)});
  ASSERT_TRUE(response) << response.error().message;
  ASSERT_EQ(response->answer, StoreAnswer::not_there);
  EXPECT_THAT(decode_missing_ranks(response->value).ranks, testing::Not(testing::Contains(1)));
}

/// All ranks, after the exchange.
std::vector<std::unique_ptr<Starting>> sealed_ranks(const Serving& serving) {
  std::vector<std::unique_ptr<Starting>> ranks;
  std::vector<std::thread> threads;
  for (Rank rank = 0; rank < kWorldSize; ++rank) {
    ranks.push_back(std::make_unique<Starting>(serving, rank));
    threads.emplace_back([&one = *ranks.back()] {
      const auto endpoints = one.exchange();
      ASSERT_TRUE(endpoints) << endpoints.error().message;
      EXPECT_EQ(endpoints->at(2).host, "h2");
    });
  }
  for (std::thread& thread : threads) thread.join();
  return ranks;
}

/// An authenticated client that sends arbitrary messages.
class Misbehaving {
 public:
  Misbehaving(const Serving& serving, Rank rank)
      : Misbehaving(std::move(*connect_and_authenticate(
            test::kNetwork, serving.address, kShared,
            {.from = rank, .to = 0, .world_size = kWorldSize}, soon_enough()))) {}

  MessageStream& stream() { return stream_; }

 private:
  explicit Misbehaving(AuthenticatedSocket connection)
      : stream_(std::move(connection.socket), connection.key, MessageStream::End::client,
                kMaxStoreMessageBytes) {}
  MessageStream stream_;
};

bool is_hung_up(const net::Socket& socket) {
  char byte;
  return net::wait_for(socket, POLLIN, net::Deadline::after(test::kClock, seconds(20))) &&
         ::recv(socket.descriptor(), &byte, 1, 0) <= 0;
}

StoreRequest get_of(const std::string& key) {
  return {.operation = StoreOperation::get, .wait_ms = 3'600'000, .key = key};
}

TEST(StoreServer, HangsUpOnRequestsThatAreNone) {
  const auto serving = start_server({.credentials = one_secret(kShared), .world_size = kWorldSize});
  for (const std::string& request :
       {std::string(), std::string(17, '\0'), std::string(17, '\xff')}) {
    Misbehaving client(serving, 1);
    ASSERT_TRUE(client.stream().send(request));
    EXPECT_TRUE(is_hung_up(client.stream().socket()));
  }
}

TEST(StoreServer, HangsUpOnAClientThatTalksWhileItWaits) {
  const auto serving = start_server({.credentials = one_secret(kShared), .world_size = kWorldSize});
  Misbehaving client(serving, 1);
  ASSERT_TRUE(client.stream().send(encode(get_of("never"))));
  ASSERT_TRUE(client.stream().send(encode(get_of("never"))));
  EXPECT_TRUE(is_hung_up(client.stream().socket()));
}

TEST(StoreServer, SetAnswersAtOnceThoseWhoWait) {
  const auto serving = start_server();
  auto writer = std::move(*connect(serving, 0));
  Misbehaving waiter(serving, 1);
  ASSERT_TRUE(waiter.stream().send(encode(get_of("later"))));
  ASSERT_TRUE(writer.ask({.operation = StoreOperation::set, .key = "later", .value = "v"}));
  EXPECT_TRUE(net::wait_for(waiter.stream().socket(), POLLIN, soon_enough()));
}

TEST(StoreServer, ClientsThatAreNoRanksHaveIdsAndSecretsOfTheirOwn) {
  const std::map<Rank, std::string> secrets{{kWorldSize, "of an agent"}, {1'000'000, "of another"}};
  const auto serving =
      start_server({.credentials = [&](const Claims& claims) -> std::optional<SharedSecret> {
                      if (claims.world_size != kNoWorld) return kShared;
                      const auto found = secrets.find(claims.from);
                      if (found == secrets.end()) return std::nullopt;
                      return SharedSecret{.secret = found->second, .purpose = kStorePurpose};
                    },
                    .world_size = kWorldSize,
                    .starts_job = ""});
  auto rank = std::move(*connect(serving, 1));
  for (const auto& [id, secret] : secrets) {
    Job job = job_of(0, kWorldSize, serving.address.port());
    job.secret = secret;
    auto session =
        open_session(test::kNetwork, job, {.from = id, .world_size = kNoWorld}, soon_enough());
    ASSERT_TRUE(session) << session.error().message;
    const std::string key = std::to_string(id);
    ASSERT_TRUE(session->ask({.operation = StoreOperation::set, .key = key, .value = secret}));
    EXPECT_EQ(rank.ask(get_of(key))->value, secret);
    // It takes no part in the start, and its end is no rank's.
    const auto response = session->ask({.operation = StoreOperation::exchange});
    ASSERT_TRUE(response);
    EXPECT_EQ(response->answer, StoreAnswer::refused);
  }
  Job job = job_of(0, kWorldSize, serving.address.port());
  job.secret = "of an agent";
  const net::Deadline brief = net::Deadline::after(test::kClock, milliseconds(100));
  EXPECT_FALSE(open_session(test::kNetwork, job, {.from = 7, .world_size = kNoWorld}, brief));
  // An id of a rank is only for ranks.
  EXPECT_FALSE(connect(serving, {.from = 1, .world_size = kNoWorld}));
  sealed_ranks(serving);
}

TEST(StoreServer, KnowsWhenItIsAlone) {
  const auto serving = start_server();
  const auto brief = [] { return net::Deadline::after(test::kClock, milliseconds(10)); };
  EXPECT_TRUE(serving.server->wait_until_idle(brief()));
  {
    auto session = std::move(*connect(serving, 1));
    ASSERT_TRUE(session.ask({.operation = StoreOperation::set, .key = "a", .value = "b"}));
    EXPECT_FALSE(serving.server->wait_until_idle(brief()));
  }
  EXPECT_TRUE(serving.server->wait_until_idle(soon_enough()));
}

TEST(StoreServer, SendsRanksThatHaveLeftToItsSuccessor) {
  const auto serving = start_server();
  ASSERT_TRUE(connect(serving, 1)->ask({.operation = StoreOperation::leave}));
  const auto again = connect(serving, 1, milliseconds(100));
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().kind, ErrorKind::timeout);
  EXPECT_THAT(again.error().message, HasSubstr("earlier rendezvous"));
}

TEST(StoreServer, RefusesRanksThatCannotBe) {
  const auto serving = start_server();
  for (const Rank rank : {-1, kWorldSize, 1 << 30}) {
    const auto session = connect(serving, rank);
    ASSERT_FALSE(session);
    EXPECT_EQ(session.error().kind, ErrorKind::mismatch);
  }
}

// Without a code, JSON that still parses would be accepted: "10.0.0.1" for "10.0.0.3".
TEST(StartState, AByteThatChangesOnTheWayToTheServerIsNamedToAll) {
  const auto serving = start_server();
  auto connected = std::move(
      *connect_and_authenticate(test::kNetwork, serving.address, kShared,
                                {.from = 1, .to = 0, .world_size = kWorldSize}, soon_enough()));
  connected.key[0] ^= std::byte{1};
  MessageStream client(std::move(connected.socket), connected.key, MessageStream::End::client,
                       kMaxStoreMessageBytes);
  ASSERT_TRUE(client.send(encode(StoreRequest{.operation = StoreOperation::exchange})));
  const auto endpoints = Starting(serving, 2).exchange();
  ASSERT_FALSE(endpoints);
  EXPECT_EQ(endpoints.error().kind, ErrorKind::corrupted);
  EXPECT_THAT(endpoints.error().message,
              AllOf(HasSubstr("rank 1 (127.0.0.1:"), HasSubstr("was corrupted in transit")));
}

/// Forwards bytes between a client and the server, and changes one of them on request.
class Relay {
 public:
  explicit Relay(net::SocketAddress to)
      : listener_(std::move(*net::listen_on(*net::SocketAddress::of("127.0.0.1", 0)))),
        address_(net::local_address(listener_)),
        thread_([this, to] { run(to); }) {}

  ~Relay() {
    stop_ = true;
    thread_.join();
  }

  const net::SocketAddress& address() const { return address_; }

  /// Changes the last byte of the server's next message.
  void change_a_byte() { change_ = true; }

 private:
  void run(const net::SocketAddress& to) {
    if (!net::wait_for(listener_, POLLIN, net::Deadline::after(test::kClock, seconds(20)))) return;
    const net::Socket client = std::move((**net::accept_one(listener_)).socket);
    const net::Socket server =
        std::move(*net::connect_to(to, net::Deadline::after(test::kClock, seconds(20))));
    while (!stop_) {
      if (!pass(client, server, false) || !pass(server, client, true)) return;
    }
  }

  bool pass(const net::Socket& from, const net::Socket& to, bool from_server) {
    std::array<std::byte, 4096> bytes;
    if (!net::wait_for(from, POLLIN, net::Deadline::after(test::kClock, milliseconds(1))))
      return true;
    const net::Transfer got = net::receive_some(from, bytes);
    if (got.ended) return false;
    if (from_server && change_.exchange(false)) bytes[got.bytes - 1] ^= std::byte{1};
    net::send_some(to, std::span(bytes).first(got.bytes));
    return true;
  }

  net::Socket listener_;
  net::SocketAddress address_;
  std::atomic<bool> stop_ = false;
  std::atomic<bool> change_ = false;
  std::thread thread_;
};

TEST(StartState, AByteThatChangesOnTheWayFromTheServerIsNamed) {
  auto serving = start_server();
  Relay relay(serving.address);
  serving.address = relay.address();
  Starting zero(serving, 0);
  EXPECT_EQ(zero.exchange(milliseconds(1)).error().kind, ErrorKind::timeout);
  relay.change_a_byte();
  const auto endpoints = zero.exchange(milliseconds(1));
  ASSERT_FALSE(endpoints);
  EXPECT_EQ(endpoints.error().kind, ErrorKind::corrupted);
  EXPECT_THAT(endpoints.error().message, AllOf(HasSubstr("rank 0 lost the job's store"),
                                               HasSubstr("wrong authentication code")));
}

TEST(StartState, TakesARankAgainThatLostItsConnection) {
  const auto serving = start_server();
  for (int turn = 0; turn < 20; ++turn) join_and_end(serving);
}

TEST(StartState, ForgetsAMemberThatTurnsToAnotherJobAndEnds) {
  const auto serving = start_server();
  const RankEndpoint endpoint = {.host = "h",
                                 .rails = {{*net::SocketAddress::parse("127.0.0.1:1"), "lo"}}};
  StoreRequest request{
      .operation = StoreOperation::exchange, .wait_ms = 1, .value = encode(endpoint)};
  {
    auto one = std::move(*connect(serving, 1));
    EXPECT_EQ(one.ask(request)->answer, StoreAnswer::not_there);
    StoreRequest other = request;
    other.key = "another job";
    EXPECT_EQ(one.ask(other)->answer, StoreAnswer::failed);
  }
  auto zero = std::move(*connect(serving, 0));
  // The server may read of the end of rank 1 after this request.
  std::vector<Rank> missing;
  do {
    const auto response = zero.ask(request);
    ASSERT_TRUE(response) << response.error().message;
    missing = decode_missing_ranks(response->value).ranks;
  } while (std::ranges::find(missing, 1) == missing.end());
  EXPECT_THAT(missing, testing::ElementsAre(1, 2, 3));
}

TEST(StartState, NamesTheRanksThatEndedBeforeAllHadJoined) {
  const auto serving = start_server();
  join_and_end(serving);
  Starting zero(serving, 0);
  // The server may read of the end of rank 1 after this request.
  Result<std::vector<RankEndpoint>> endpoints;
  do {
    endpoints = zero.exchange(milliseconds(1));
    ASSERT_FALSE(endpoints);
  } while (endpoints.error().message.find("ended") == std::string::npos);
  EXPECT_THAT(endpoints.error().message,
              testing::ContainsRegex("rank 1 .host h1, .* ended before all ranks had joined"));
}

TEST(StartState, IsCompleteWhenAllAreConnected) {
  const auto serving = start_server();
  const auto ranks = sealed_ranks(serving);
  std::vector<std::thread> threads;
  for (const auto& rank : ranks) {
    threads.emplace_back([&] { EXPECT_TRUE(rank->steps.await_all(soon_enough())); });
  }
  for (std::thread& thread : threads) thread.join();
  // Another start is another server's.
  EXPECT_THAT(connect(serving, 1, milliseconds(100)).error().message,
              HasSubstr("earlier rendezvous"));
}

TEST(StartState, OnceSealedALateRankFailsTheStartForAll) {
  const auto serving = start_server();
  auto ranks = sealed_ranks(serving);
  const Status early =
      ranks[1]->steps.await_all(net::Deadline::after(test::kClock, milliseconds(30)));
  ASSERT_FALSE(early);
  EXPECT_EQ(early.error().kind, ErrorKind::timeout);
  EXPECT_THAT(early.error().message, HasSubstr("rank 3 (host h3, 127.0.0.1:"));
  ranks[1].reset();
  // Not that rank 1 has ended.
  const Status other = ranks[0]->steps.await_all(soon_enough());
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().kind, ErrorKind::timeout);
  EXPECT_THAT(other.error().message, HasSubstr(early.error().message));
}

TEST(StartState, OnceSealedTheEndOfARankFailsTheStartForAll) {
  const auto serving = start_server();
  auto ranks = sealed_ranks(serving);
  ranks[3].reset();
  for (const Rank rank : {0, 1, 2}) {
    const Status all = ranks[static_cast<std::size_t>(rank)]->steps.await_all(soon_enough());
    ASSERT_FALSE(all);
    EXPECT_EQ(all.error().kind, ErrorKind::disconnected);
    EXPECT_THAT(all.error().message, HasSubstr("rank 3 (host h3, "));
  }
}

TEST(StartState, ARankThatWaitsSaysWhyRankZeroGaveUp) {
  const auto serving = start_server();
  Starting zero(serving, 0);
  Result<std::vector<RankEndpoint>> joined;
  std::thread waits([&] { joined = Starting(serving, 1).exchange(); });
  EXPECT_EQ(zero.steps.fail({ErrorKind::timeout, "rank 2 has not joined"}).kind,
            ErrorKind::timeout);
  waits.join();
  ASSERT_FALSE(joined);
  EXPECT_THAT(joined.error().message, HasSubstr("rank 2 has not joined"));
}

TEST(StartState, EndOfTheServerIsAnErrorForThoseWhoWait) {
  auto serving = start_server();
  Starting one(serving, 1);
  std::thread waits([&] {
    const auto endpoints = one.exchange();
    ASSERT_FALSE(endpoints);
    EXPECT_EQ(endpoints.error().kind, ErrorKind::disconnected);
    EXPECT_THAT(endpoints.error().message, HasSubstr("rank 1 lost the job's store of rank 0"));
  });
  serving.server.reset();
  waits.join();
  EXPECT_FALSE(one.exchange());
}

TEST(MissingRanks, SurviveTheirJourney) {
  const MissingRanks missing = {.ranks = {1, 3}, .ended = {"rank 3 (host b)"}};
  const MissingRanks back = decode_missing_ranks(encode(missing));
  EXPECT_EQ(back.ranks, missing.ranks);
  EXPECT_EQ(back.ended, missing.ended);
  for (const char* text : {"", "[]", "7", R"({"ranks":["a"],"ended":[7]})"}) {
    EXPECT_TRUE(decode_missing_ranks(text).ranks.empty()) << text;
    EXPECT_TRUE(decode_missing_ranks(text).ended.empty()) << text;
  }
}

}  // namespace
}  // namespace gradwire::bootstrap
