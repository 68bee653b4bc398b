#include "gradwire/comm/rendezvous_store.h"

#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include "gradwire/comm/rendezvous_server.h"
#include "gradwire/comm/store_protocol.h"
#include "gradwire/net/handshake.h"

namespace gradwire {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

constexpr int kWorldSize = 4;

struct Serving {
  SocketAddress address;
  std::unique_ptr<RendezvousServer> server;
};

Serving start_server() {
  auto listener = listen_on(*SocketAddress::of("127.0.0.1", 0));
  const SocketAddress address = local_address(*listener);
  auto door = std::make_unique<ListeningDoor>(std::move(*listener));
  return {address, std::move(*RendezvousServer::start(std::move(door), "secret", kWorldSize))};
}

Result<std::unique_ptr<RendezvousStore>> connect(const Serving& serving, Rank rank,
                                                 Duration timeout = seconds(20)) {
  return RendezvousStore::connect({.host = "127.0.0.1",
                                   .port = serving.address.port(),
                                   .secret = "secret",
                                   .rank = rank,
                                   .world_size = kWorldSize},
                                  Deadline::after(timeout));
}

/// An authenticated connection that then says what the test wants.
Socket misbehaving(const Serving& serving, Rank rank) {
  return std::move(*connect_and_greet(serving.address, {.secret = "secret", .purpose = "store"},
                                      {.from = rank, .to = 0, .world_size = kWorldSize},
                                      Deadline::after(seconds(20))));
}

bool is_hung_up(const Socket& socket) {
  char byte;
  return wait_for(socket, POLLIN, Deadline::after(seconds(20))) &&
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
  // And the connection is still of use.
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
  std::string huge = encode_request(RequestKind::set, "k", "v", 0);
  huge[7] = '\x7f';  // A value of 2 GB, says the header.
  for (const std::string& request : {std::string(16, '\0'), std::string(16, '\xff'), huge}) {
    const Socket socket = misbehaving(serving, 1);
    ASSERT_GT(::send(socket.descriptor(), request.data(), request.size(), MSG_NOSIGNAL), 0);
    EXPECT_TRUE(is_hung_up(socket));
  }
}

TEST(RendezvousStore, HangsUpOnAClientThatTalksWhileItWaits) {
  const auto serving = start_server();
  const Socket socket = misbehaving(serving, 1);
  const std::string get = encode_request(RequestKind::get, "never", "", 60'000);
  ASSERT_GT(::send(socket.descriptor(), (get + get).data(), 2 * get.size(), MSG_NOSIGNAL), 0);
  EXPECT_TRUE(is_hung_up(socket));
}

TEST(RendezvousStore, SetAnswersAtOnceThoseWhoWait) {
  const auto serving = start_server();
  const auto writer = std::move(*connect(serving, 0));
  const Socket waiter = misbehaving(serving, 1);
  const std::string get = encode_request(RequestKind::get, "later", "", 3'600'000);
  ASSERT_GT(::send(waiter.descriptor(), get.data(), get.size(), MSG_NOSIGNAL), 0);
  ASSERT_TRUE(writer->set("later", "v"));
  EXPECT_TRUE(wait_for(waiter, POLLIN, Deadline::after(seconds(20))));
}

TEST(RendezvousServer, KnowsWhenItIsAlone) {
  const auto serving = start_server();
  EXPECT_TRUE(serving.server->wait_until_alone(Deadline::after(milliseconds(10))));
  auto store = std::move(*connect(serving, 1));
  ASSERT_TRUE(store->set("a", "b"));
  EXPECT_FALSE(serving.server->wait_until_alone(Deadline::after(milliseconds(10))));
  store.reset();
  EXPECT_TRUE(serving.server->wait_until_alone(Deadline::after(seconds(20))));
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
}  // namespace gradwire
