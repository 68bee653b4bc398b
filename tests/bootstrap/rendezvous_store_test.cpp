#include "gradwire/bootstrap/rendezvous_store.h"

#include <array>
#include <atomic>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include "gradwire/bootstrap/handshake.h"
#include "gradwire/bootstrap/rendezvous_server.h"
#include "gradwire/bootstrap/store_protocol.h"
#include "gradwire/bootstrap/store_rendezvous.h"
#include "tests/support/host.h"

namespace gradwire::bootstrap {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::AllOf;
using testing::HasSubstr;

constexpr int kWorldSize = 4;

struct Serving {
  net::SocketAddress address;
  std::unique_ptr<RendezvousServer> server;
};

Serving start_server() {
  auto socket = net::listen_on(*net::SocketAddress::of("127.0.0.1", 0));
  const net::SocketAddress address = net::local_address(*socket);
  auto listener = std::make_unique<SocketListener>(std::move(*socket));
  return {address,
          std::move(*RendezvousServer::start(test::kNetwork, std::move(listener),
                                             {.secret = "secret", .world_size = kWorldSize}))};
}

Result<std::unique_ptr<RendezvousStore>> connect(const Serving& serving, Rank rank,
                                                 Duration timeout = seconds(20)) {
  return RendezvousStore::connect(test::kNetwork,
                                  {.host = "127.0.0.1",
                                   .port = serving.address.port(),
                                   .secret = "secret",
                                   .rank = rank,
                                   .world_size = kWorldSize},
                                  net::Deadline::after(test::kClock, timeout));
}

/// A joined process that then sends arbitrary bytes.
class Misbehaving {
 public:
  Misbehaving(const Serving& serving, Rank rank)
      : connection_(std::move(*connect_and_authenticate(
            test::kNetwork, serving.address, {.secret = "secret", .purpose = "store"},
            {.from = rank, .to = 0, .world_size = kWorldSize},
            net::Deadline::after(test::kClock, seconds(20))))),
        codes_(connection_.key, StoreCodes::Speaker::client) {
    send(request(RequestKind::join, "", encode(Newcomer{})));
    std::string answer(ResponseHeader::kSize + kCodeSize, '\0');
    EXPECT_TRUE(net::wait_for(socket(), POLLIN, net::Deadline::after(test::kClock, seconds(20))));
    EXPECT_EQ(::recv(socket().descriptor(), answer.data(), answer.size(), MSG_WAITALL),
              static_cast<ssize_t>(answer.size()));
  }

  const net::Socket& socket() const { return connection_.socket; }
  StoreCodes& codes() { return codes_; }

  std::string request(RequestKind kind, std::string_view key, std::string_view value,
                      std::uint32_t wait_ms = 0) {
    return encode_request(kind, key, value, wait_ms, codes_);
  }

  void send(const std::string& bytes) {
    ASSERT_GT(::send(socket().descriptor(), bytes.data(), bytes.size(), MSG_NOSIGNAL), 0);
  }

 private:
  AuthenticatedSocket connection_;
  StoreCodes codes_;
};

bool is_hung_up(const net::Socket& socket) {
  char byte;
  return net::wait_for(socket, POLLIN, net::Deadline::after(test::kClock, seconds(20))) &&
         ::recv(socket.descriptor(), &byte, 1, 0) <= 0;
}

TEST(RendezvousStore, GivesWhatWasSetWhateverTheBytes) {
  const auto serving = start_server();
  const auto writer = std::move(*connect(serving, 0));
  const auto reader = std::move(*connect(serving, 1));
  const std::string key("k\0\n\xff", 4);
  const std::string largest(kMaxValueBytes, '\0');
  for (const std::string& value : {std::string("a"), std::string(), largest}) {
    ASSERT_TRUE(writer->set(key, value));
    EXPECT_EQ(reader->get(key, seconds(20)), value);
  }
  ASSERT_TRUE(writer->set(std::string(kMaxKeyBytes, 'k'), "v"));
}

TEST(RendezvousStore, GetWaitsUntilSomebodySets) {
  const auto serving = start_server();
  const auto writer = std::move(*connect(serving, 0));
  std::vector<std::thread> waiters;
  for (Rank rank = 1; rank < kWorldSize; ++rank) {
    waiters.emplace_back([&, rank] {
      const auto reader = std::move(*connect(serving, rank));
      EXPECT_EQ(reader->get("later", seconds(60)), "value");
    });
  }
  ASSERT_TRUE(writer->set("other", "not this"));
  ASSERT_TRUE(writer->set("later", "value"));
  for (std::thread& waiter : waiters) waiter.join();
}

TEST(RendezvousStore, GetTimesOutNamingTheKey) {
  const auto serving = start_server();
  const auto store = std::move(*connect(serving, 0));
  const auto value = store->get("never", milliseconds(30));
  ASSERT_FALSE(value);
  EXPECT_EQ(value.error().kind, ErrorKind::timeout);
  EXPECT_THAT(value.error().message, HasSubstr("\"never\""));
  // The connection is still usable.
  ASSERT_TRUE(store->set("a", "b"));
  EXPECT_EQ(store->get("a", seconds(20)), "b");
}

TEST(RendezvousStore, ThreadsShareAConnection) {
  const auto serving = start_server();
  const auto store = std::move(*connect(serving, 0));
  std::thread waiter([&] { EXPECT_EQ(store->get("from the other", seconds(60)), "x"); });
  EXPECT_TRUE(store->set("from the other", "x"));
  waiter.join();
}

TEST(RendezvousStore, RefusesWhatIsTooLargeAndStaysUsable) {
  const auto serving = start_server();
  const auto store = std::move(*connect(serving, 0));
  EXPECT_FALSE(store->set("k", std::string(kMaxValueBytes + 1, 'v')));
  EXPECT_FALSE(store->set(std::string(kMaxKeyBytes + 1, 'k'), "v"));
  EXPECT_TRUE(store->set("k", "v"));
}

TEST(RendezvousStore, IsFullAtItsLimitButTakesReplacements) {
  const auto serving = start_server();
  const auto store = std::move(*connect(serving, 0));
  const std::string value(kMaxValueBytes, 'v');
  std::size_t taken = 0;
  Status status;
  for (; status; ++taken) status = store->set("key " + std::to_string(taken), value);
  EXPECT_EQ(status.error().kind, ErrorKind::invalid_argument);
  EXPECT_THAT(status.error().message, HasSubstr("is full"));
  EXPECT_EQ(taken, kMaxStoreBytes / kMaxValueBytes);
  EXPECT_TRUE(store->set("key 0", value));
}

TEST(RendezvousStore, EndOfTheServerIsAnErrorForThoseWhoWait) {
  auto serving = start_server();
  const auto store = std::move(*connect(serving, 1));
  std::thread waiter([&] {
    const auto value = store->get("never", seconds(60));
    EXPECT_FALSE(value);
    EXPECT_EQ(value.error().kind, ErrorKind::disconnected);
    EXPECT_THAT(value.error().message, HasSubstr("lost the rendezvous store of rank 0"));
  });
  serving.server.reset();
  waiter.join();
  EXPECT_FALSE(store->set("a", "b"));
}

TEST(RendezvousStore, HangsUpOnRequestsThatAreNone) {
  const auto serving = start_server();
  std::string huge(16, '\0');
  huge[0] = static_cast<char>(RequestKind::set);
  huge[7] = '\x7f';  // The header announces a value of 2 GB.
  for (const std::string& head : {std::string(16, '\0'), std::string(16, '\xff'), huge}) {
    Misbehaving client(serving, 1);
    client.send(client.codes().with_code(head));
    EXPECT_TRUE(is_hung_up(client.socket()));
  }
}

TEST(RendezvousStore, HangsUpOnAClientThatTalksWhileItWaits) {
  const auto serving = start_server();
  Misbehaving client(serving, 1);
  const std::string get = client.request(RequestKind::get, "never", "", 60'000);
  client.send(get + client.request(RequestKind::get, "never", "", 60'000));
  EXPECT_TRUE(is_hung_up(client.socket()));
}

TEST(RendezvousStore, SetAnswersAtOnceThoseWhoWait) {
  const auto serving = start_server();
  const auto writer = std::move(*connect(serving, 0));
  Misbehaving waiter(serving, 1);
  waiter.send(waiter.request(RequestKind::get, "later", "", 3'600'000));
  ASSERT_TRUE(writer->set("later", "v"));
  EXPECT_TRUE(
      net::wait_for(waiter.socket(), POLLIN, net::Deadline::after(test::kClock, seconds(20))));
}

// Without a checksum, JSON that still parses would be accepted: "10.0.0.1" for "10.0.0.3".
TEST(RendezvousStore, AByteThatChangesOnTheWayToTheServerIsNamedToAll) {
  const auto serving = start_server();
  const auto other = std::move(*connect(serving, 2));
  Misbehaving client(serving, 1);
  std::string request = client.request(RequestKind::set, "place", "10.0.0.1");
  request[request.size() - kCodeSize - 1] = '3';
  client.send(request);
  const auto value = other->get("place", seconds(60));
  ASSERT_FALSE(value);
  EXPECT_EQ(value.error().kind, ErrorKind::corrupted);
  EXPECT_THAT(value.error().message,
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

TEST(RendezvousStore, AByteThatChangesOnTheWayFromTheServerIsNamed) {
  auto serving = start_server();
  Relay relay(serving.address);
  serving.address = relay.address();
  const auto store = std::move(*connect(serving, 1));
  ASSERT_TRUE(store->set("k", "v"));
  relay.change_a_byte();
  const auto value = store->get("k", seconds(20));
  ASSERT_FALSE(value);
  EXPECT_EQ(value.error().kind, ErrorKind::corrupted);
  EXPECT_THAT(value.error().message, HasSubstr("rank 1 received"));
}

TEST(RendezvousServer, ForgetsWhatARankHadSetThatLeavesBeforeAllHaveJoined) {
  const auto serving = start_server();
  const auto reader = std::move(*connect(serving, 0));
  auto writer = std::move(*connect(serving, 1));
  ASSERT_TRUE(writer->set("place", "of a process that dies"));
  writer.reset();
  writer = std::move(*connect(serving, 1));
  EXPECT_FALSE(reader->get("place", milliseconds(1)));
}

TEST(RendezvousServer, IsSealedOnlyWhenAllHaveJoined) {
  const auto serving = start_server();
  std::vector<std::unique_ptr<RendezvousStore>> stores;
  for (Rank rank = 0; rank < kWorldSize; ++rank) {
    if (rank > 0) {
      EXPECT_EQ(stores[0]->seal(), false);
    }
    stores.push_back(std::move(*connect(serving, rank)));
  }
  EXPECT_EQ(stores[0]->seal(), true);
}

TEST(RendezvousServer, OnceSealedItIsCompleteForAll) {
  const auto serving = start_server();
  std::vector<std::unique_ptr<RendezvousStore>> stores;
  for (Rank rank = 0; rank < kWorldSize; ++rank)
    stores.push_back(std::move(*connect(serving, rank)));
  ASSERT_EQ(stores[0]->seal(), true);
  std::vector<std::thread> ranks;
  for (const auto& store : stores) {
    ranks.emplace_back(
        [&] { EXPECT_TRUE(store->complete(net::Deadline::after(test::kClock, seconds(20)))); });
  }
  for (std::thread& rank : ranks) rank.join();
}

TEST(RendezvousServer, OnceSealedALateRankFailsTheStartForAll) {
  const auto serving = start_server();
  std::vector<std::unique_ptr<RendezvousStore>> stores;
  for (Rank rank = 0; rank < kWorldSize; ++rank)
    stores.push_back(std::move(*connect(serving, rank)));
  ASSERT_EQ(stores[0]->seal(), true);
  const Status early = stores[1]->complete(net::Deadline::after(test::kClock, milliseconds(30)));
  ASSERT_FALSE(early);
  EXPECT_EQ(early.error().kind, ErrorKind::timeout);
  EXPECT_THAT(early.error().message, HasSubstr("rank 3 (127.0.0.1:"));
  stores[1].reset();
  // Not that rank 1 has ended.
  const Status other = stores[0]->complete(net::Deadline::after(test::kClock, seconds(20)));
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().kind, ErrorKind::timeout);
  EXPECT_THAT(other.error().message, HasSubstr(early.error().message));
}

TEST(StoreRendezvous, ARankThatWaitsSaysWhyRankZeroGaveUp) {
  const auto serving = start_server();
  const auto zero = std::move(*connect(serving, 0));
  const auto one = std::move(*connect(serving, 1));
  StoreRendezvous rendezvous(*one, "0", {.rank = 1, .world_size = kWorldSize});
  std::thread gives_up([&] {
    EXPECT_TRUE(zero->get("gradwire/0/knock/1", seconds(20)));
    (void)zero->fail({ErrorKind::timeout, "rank 2 has not joined"});
  });
  const Status joined = rendezvous.join(net::Deadline::after(test::kClock, seconds(20)));
  gives_up.join();
  ASSERT_FALSE(joined);
  EXPECT_THAT(joined.error().message, HasSubstr("rank 2 has not joined"));
}

TEST(RendezvousServer, KnowsWhenItIsAlone) {
  const auto serving = start_server();
  EXPECT_TRUE(
      serving.server->wait_until_idle(net::Deadline::after(test::kClock, milliseconds(10))));
  auto store = std::move(*connect(serving, 1));
  ASSERT_TRUE(store->set("a", "b"));
  EXPECT_FALSE(
      serving.server->wait_until_idle(net::Deadline::after(test::kClock, milliseconds(10))));
  store.reset();
  EXPECT_TRUE(serving.server->wait_until_idle(net::Deadline::after(test::kClock, seconds(20))));
}

TEST(RendezvousServer, SendsFinishedRanksToItsSuccessor) {
  const auto serving = start_server();
  ASSERT_TRUE((*connect(serving, 1))->finish());
  const auto again = connect(serving, 1, milliseconds(100));
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().kind, ErrorKind::timeout);
  EXPECT_THAT(again.error().message, HasSubstr("earlier rendezvous"));
}

TEST(RendezvousServer, TakesARankAgainThatLostItsConnection) {
  const auto serving = start_server();
  for (int turn = 0; turn < 20; ++turn) {
    const auto store = connect(serving, 1);
    ASSERT_TRUE(store) << store.error().message;
    ASSERT_TRUE((*store)->set("turn", std::to_string(turn)));
  }
}

TEST(RendezvousServer, RefusesRanksThatCannotBe) {
  const auto serving = start_server();
  for (const Rank rank : {-1, kWorldSize, 1 << 30}) {
    const auto store = connect(serving, rank);
    ASSERT_FALSE(store);
    EXPECT_EQ(store.error().kind, ErrorKind::mismatch);
  }
}

}  // namespace
}  // namespace gradwire::bootstrap
