#include "gradwire/bootstrap/mesh/shared_port.h"

#include <atomic>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/bootstrap/handshake/handshake_server.h"
#include "tests/support/host.h"
#include "tests/support/loopback.h"

namespace gradwire::bootstrap {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::AllOf;
using testing::HasSubstr;

const SharedSecret kShared = {.secret = "open sesame", .purpose = "test"};

/// Returns a port of the loopback that was free a moment ago.
net::SocketAddress free_address() {
  return net::local_address(*net::listen_on(test::any_loopback_port()));
}

PortMember member_at(const net::SocketAddress& address, Rank rank) {
  return {.destination = {service_number(kShared.purpose), rank}, .addresses = {address}};
}

Result<std::unique_ptr<SharedPortListener>> open_listener(
    const net::SocketAddress& address, Rank rank, const std::string& secret = kShared.secret) {
  return SharedPortListener::open(test::kNetwork, shared_port_name(secret, address.port()),
                                  member_at(address, rank), test::soon_enough());
}

/// One rank behind the shared port, on its own thread in place of a process.
class Member {
 public:
  Member(const net::SocketAddress& address, Rank rank)
      : rank_(rank),
        handshakes_(
            test::kClock, listeners(address, rank),
            {.credentials = one_secret(kShared), .world_size = 8, .timeout = seconds(60)},
            [this](const Claims& claims) { return admit(claims); },
            [this](AuthenticatedConnection) { ++entered_; }),
        thread_([this] { run(); }) {}

  ~Member() {
    stop_ = true;
    thread_.join();
  }

  /// Waits for at least this many admitted callers; a caller knows of it slightly before this side.
  int entered(int at_least) const {
    const net::Deadline deadline = test::soon_enough();
    while (entered_ < at_least && !deadline.passed()) std::this_thread::yield();
    return entered_;
  }

 private:
  static Listeners listeners(const net::SocketAddress& address, Rank rank) {
    auto listener = open_listener(address, rank);
    EXPECT_TRUE(listener) << listener.error().message;
    Listeners listeners;
    listeners.push_back(std::move(*listener));
    return listeners;
  }

  Verdict admit(const Claims& claims) const {
    return claims.to == rank_ ? Verdict::accepted : Verdict::impossible;
  }

  void run() {
    net::PollSet set;
    while (!stop_) {
      set.clear();
      set.wait(handshakes_.watch(set, net::Deadline::after(test::kClock, milliseconds(5))));
      ASSERT_TRUE(handshakes_.advance(set));
    }
  }

  Rank rank_;
  std::atomic<int> entered_ = 0;
  std::atomic<bool> stop_ = false;
  HandshakeServer handshakes_;
  std::thread thread_;
};

/// Connects as ranks do: retries if refused or disconnected.
Status call(const net::SocketAddress& address, Rank to) {
  const net::Deadline deadline = test::soon_enough();
  for (;;) {
    const auto socket =
        connect_authenticated(test::kNetwork, address, kShared,
                              {.from = 7, .to = to, .world_size = 8, .rail = 0}, deadline);
    if (socket) return {};
    if (socket.error().kind != ErrorKind::disconnected || deadline.passed()) {
      return tl::unexpected<Error>(socket.error());
    }
  }
}

TEST(SharedPort, PassesEachConnectionToItsDestination) {
  const net::SocketAddress address = free_address();
  Member zero(address, 0);
  Member one(address, 1);
  Member two(address, 2);
  for (const Rank to : {1, 2, 1, 0, 1}) {
    const Status called = call(address, to);
    ASSERT_TRUE(called) << called.error().message;
  }
  EXPECT_EQ(zero.entered(1), 1);
  EXPECT_EQ(one.entered(3), 3);
  EXPECT_EQ(two.entered(1), 1);
}

TEST(SharedPort, AnotherRankTakesOverWhenTheListenerLeaves) {
  const net::SocketAddress address = free_address();
  std::vector<std::unique_ptr<Member>> members;
  for (Rank rank = 0; rank < 4; ++rank) {
    members.push_back(std::make_unique<Member>(address, rank));
  }
  while (members.size() > 1) {
    members.erase(members.begin());  // It opened its listener first, or took over.
    for (std::size_t i = 0; i < members.size(); ++i) {
      const Rank rank = static_cast<Rank>(4 - members.size() + i);
      const Status called = call(address, rank);
      ASSERT_TRUE(called) << called.error().message;
    }
  }
  EXPECT_EQ(members.back()->entered(3), 3);
}

TEST(SharedPort, AConnectionWithoutDestinationIsClosedAndMayBeRetried) {
  const net::SocketAddress address = free_address();
  Member zero(address, 0);
  const auto nobody =
      connect_authenticated(test::kNetwork, address, kShared,
                            {.from = 7, .to = 5, .world_size = 8, .rail = 0}, test::soon_enough());
  ASSERT_FALSE(nobody);
  EXPECT_EQ(nobody.error().kind, ErrorKind::disconnected);
  Member five(address, 5);
  EXPECT_TRUE(call(address, 5));
}

TEST(SharedPort, ConnectionsOfOtherServicesDoNotArrive) {
  const net::SocketAddress address = free_address();
  Member zero(address, 0);
  const auto other = connect_authenticated(
      test::kNetwork, address, {.secret = kShared.secret, .purpose = "another"},
      {.from = 7, .to = 0, .world_size = 8, .rail = 0}, test::soon_enough());
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().kind, ErrorKind::disconnected);
}

TEST(SharedPort, UnauthenticatedPeersAreRefusedAndDisturbNobody) {
  const net::SocketAddress address = free_address();
  Member zero(address, 0);
  std::vector<net::Socket> peers;
  for (int i = 0; i < 100; ++i) {
    peers.push_back(std::move(*net::connect_to(address, test::soon_enough())));
    const std::string_view says =
        i % 2 == 0 ? "GRAD"
                   : "GET / HTTP/1.1\r\nHost: somewhere\r\nUser-Agent: somebody at all\r\n";
    if (i % 3 != 0) ::send(peers.back().descriptor(), says.data(), says.size(), MSG_NOSIGNAL);
  }
  const Status called = call(address, 0);
  EXPECT_TRUE(called) << called.error().message;
  EXPECT_EQ(zero.entered(1), 1);
}

TEST(SharedPort, SilenceEndsAtTheDeadline) {
  const net::SocketAddress address = free_address();
  const auto listener = open_listener(address, 0);
  ASSERT_TRUE(listener);
  const auto silent = net::connect_to(address, test::soon_enough());
  ASSERT_TRUE(silent);
  EXPECT_TRUE(net::wait_for(*silent, POLLIN, test::soon_enough()));
  EXPECT_TRUE(net::has_ended(*silent));
}

Duration cpu_time() {
  timespec used = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return seconds(used.tv_sec) + std::chrono::nanoseconds(used.tv_nsec);
}

TEST(SharedPort, HalfAHelloBlocksNobody) {
  const net::SocketAddress address = free_address();
  const auto listener = open_listener(address, 0);
  ASSERT_TRUE(listener);
  const auto half = net::connect_to(address, test::soon_enough());
  ASSERT_TRUE(half);
  const Duration before = cpu_time();
  ASSERT_EQ(::send(half->descriptor(), "GRADWIRE", 8, MSG_NOSIGNAL), 8);
  EXPECT_FALSE(net::wait_for(*half, POLLIN, net::Deadline::after(test::kClock, milliseconds(500))));
  EXPECT_LT(cpu_time() - before, milliseconds(250));
}

TEST(SharedPort, AWrongSecretIsExplainedByTheRankItself) {
  const net::SocketAddress address = free_address();
  Member zero(address, 0);
  const auto wrong = connect_authenticated(
      test::kNetwork, address, {.secret = "wrong", .purpose = kShared.purpose},
      {.from = 7, .to = 0, .world_size = 8, .rail = 0}, test::soon_enough());
  ASSERT_FALSE(wrong);
  EXPECT_THAT(wrong.error().message, HasSubstr("wrong secret"));
}

TEST(SharedPort, APortThatAnotherProgramHasIsNamed) {
  const auto other = net::listen_on(test::any_loopback_port());
  const auto listener = open_listener(net::local_address(*other), 0);
  ASSERT_FALSE(listener);
  EXPECT_EQ(listener.error().kind, ErrorKind::invalid_argument);
  EXPECT_THAT(listener.error().message, AllOf(HasSubstr(net::local_address(*other).to_string()),
                                              HasSubstr("another program already does")));
}

TEST(SharedPort, ASecondJobIsRefused) {
  const net::SocketAddress address = free_address();
  const auto first = open_listener(address, 0);
  ASSERT_TRUE(first);
  const auto second = open_listener(address, 0, "another secret");
  ASSERT_FALSE(second);
  EXPECT_THAT(second.error().message, HasSubstr("choose another port"));
}

TEST(SharedPort, IsFreeAgainAfterTheLast) {
  const net::SocketAddress address = free_address();
  for (int turn = 0; turn < 3; ++turn) {
    Member zero(address, 0);
    EXPECT_TRUE(call(address, 0));
  }
  EXPECT_TRUE(net::listen_on(address));
}

TEST(SharedPortName, DependsOnSecretAndPort) {
  EXPECT_EQ(shared_port_name("a", 1), shared_port_name("a", 1));
  EXPECT_NE(shared_port_name("a", 1), shared_port_name("a", 2));
  EXPECT_NE(shared_port_name("a", 1), shared_port_name("b", 1));
  EXPECT_THAT(shared_port_name("a", 1), testing::Not(HasSubstr("/")));
}

TEST(SharedPortName, IsDerivedSlowlyAsEveryUserCanTryGuessesOnIt) {
  // hashlib.scrypt(b"open sesame", salt=b"gradwire port 29500", n=8192, r=8, p=1, dklen=16)
  EXPECT_EQ(shared_port_name("open sesame", 29500),
            "gradwire-29500-24718d7e632312d7accca628e830719b");
}

TEST(PortMember, IsDecodedAsEncoded) {
  const PortMember member = {.destination = {4'000'000'000u, 12},
                             .addresses = {*net::SocketAddress::parse("10.0.0.1:29500"),
                                           *net::SocketAddress::parse("[::1]:29500")}};
  const auto back = decode_port_member(encode(member));
  ASSERT_TRUE(back);
  EXPECT_EQ(back->destination, member.destination);
  EXPECT_EQ(back->addresses, member.addresses);
}

TEST(PortMember, InvalidTextIsRefused) {
  for (const char* text : {"", " ", "1", "1 2", "x 2 10.0.0.1:1", "1 y 10.0.0.1:1", "1 2 10.0.0.1",
                           "1 2  10.0.0.1:1", "-1 2 10.0.0.1:1"}) {
    EXPECT_FALSE(decode_port_member(text)) << text;
  }
}

TEST(Destination, IsReadFromOurHelloAlone) {
  test::SocketPair pair = test::connected_pair();
  ClientHandshake client(std::move(pair.first), "the server", kShared,
                         {.from = 3, .to = 6, .world_size = 8, .rail = 1});
  ASSERT_TRUE(client.advance());
  std::vector<std::byte> hello(kHelloSize);
  ASSERT_TRUE(net::wait_for(pair.second, POLLIN, test::soon_enough()));
  ASSERT_EQ(net::receive_some(pair.second, hello).bytes, kHelloSize);
  ASSERT_TRUE(destination_of(hello));
  EXPECT_EQ(*destination_of(hello), (Destination{service_number("test"), 6}));
  EXPECT_FALSE(destination_of(ConstBytes(hello).first(kHelloSize - 1)));
  hello[8] = std::byte{99};  // A different version.
  EXPECT_FALSE(destination_of(hello));
  EXPECT_FALSE(destination_of(std::vector<std::byte>(kHelloSize)));
}

}  // namespace
}  // namespace gradwire::bootstrap
