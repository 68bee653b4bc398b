#include "gradwire/bootstrap/handshake/handshake_server.h"

#include <atomic>
#include <optional>
#include <thread>

#include <gtest/gtest.h>

#include "tests/support/host.h"
#include "tests/support/loopback.h"

namespace gradwire::bootstrap {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const SharedSecret kShared = {.secret = "open sesame", .purpose = "test"};

/// A server that runs on its own thread.
class RunningServer {
 public:
  explicit RunningServer(HandshakeServer::Options options)
      : RunningServer(std::move(*net::listen_on(test::any_loopback_port())), std::move(options)) {}

  RunningServer(net::Socket listener, HandshakeServer::Options options)
      : RunningServer{net::local_address(listener), listeners_of(std::move(listener)),
                      std::move(options)} {}

  RunningServer(net::SocketAddress address, Listeners listeners, HandshakeServer::Options options)
      : address_(address),
        handshakes_(
            test::kClock, std::move(listeners), std::move(options),
            [](const Claims&) { return Verdict::accepted; },
            [this](AuthenticatedConnection connection) {
              entered_.push_back(std::move(connection));
            }),
        thread_([this] { run(); }) {}

  ~RunningServer() {
    stop_ = true;
    thread_.join();
  }

  const net::SocketAddress& address() const { return address_; }

  /// Connects an authenticated client; returns once it is admitted.
  Result<net::Socket> enter(Rank rank) {
    return connect_authenticated(test::kNetwork, address_, kShared,
                                 {.from = rank, .to = 0, .world_size = 4}, test::soon_enough());
  }

 private:
  void run() {
    net::PollSet set;
    while (!stop_) {
      set.clear();
      set.wait(handshakes_.watch(set, net::Deadline::after(test::kClock, milliseconds(5))));
      ASSERT_TRUE(handshakes_.advance(set));
    }
  }

  std::vector<AuthenticatedConnection> entered_;
  net::SocketAddress address_;
  HandshakeServer handshakes_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

HandshakeServer::Options options_with(Duration timeout, std::size_t max_unauthenticated = 128) {
  return {.credentials = one_secret(kShared),
          .world_size = 4,
          .expected = 4,
          .timeout = timeout,
          .max_unauthenticated = max_unauthenticated};
}

net::Socket unauthenticated(const RunningServer& server, std::string_view says = "") {
  auto socket = net::connect_to(server.address(), test::soon_enough());
  EXPECT_TRUE(socket);
  ::send(socket->descriptor(), says.data(), says.size(), MSG_NOSIGNAL);
  return std::move(*socket);
}

/// Waits until the server has closed this connection.
bool is_hung_up(const net::Socket& socket) {
  char byte;
  while (net::wait_for(socket, POLLIN, test::soon_enough())) {
    const ssize_t count = ::recv(socket.descriptor(), &byte, 1, 0);
    if (count == 0 || (count < 0 && errno != EAGAIN)) return true;
  }
  return false;
}

TEST(HandshakeServer, AcceptsClientsWhileUnauthenticatedPeersAreSilent) {
  RunningServer server(options_with(seconds(60)));
  std::vector<net::Socket> silent;
  for (int i = 0; i < 100; ++i) silent.push_back(unauthenticated(server, i % 2 == 0 ? "" : "GRAD"));
  for (Rank rank = 0; rank < 4; ++rank) {
    const auto socket = server.enter(rank);
    EXPECT_TRUE(socket) << socket.error().message;
  }
}

TEST(HandshakeServer, SilenceEndsAtTheDeadline) {
  RunningServer server(options_with(milliseconds(100)));
  EXPECT_TRUE(is_hung_up(unauthenticated(server)));
}

TEST(HandshakeServer, AByteNowAndThenDoesNotExtendTheDeadline) {
  RunningServer server(options_with(milliseconds(200)));
  const net::Socket slow = unauthenticated(server);
  const std::string hello = "GRADWIRE" + std::string(56, '\0');
  bool open = true;
  // The handshake would take 6.4 s at this pace.
  for (std::size_t i = 0; open && i < hello.size(); ++i) {
    ::send(slow.descriptor(), &hello[i], 1, MSG_NOSIGNAL);
    open = !net::wait_for(slow, POLLIN | POLLRDHUP,
                          net::Deadline::after(test::kClock, milliseconds(100)));
  }
  EXPECT_FALSE(open);
}

TEST(HandshakeServer, ClosesConnectionsThatSendGarbage) {
  RunningServer server(options_with(seconds(60)));
  EXPECT_TRUE(is_hung_up(unauthenticated(server, "SSH-2.0-OpenSSH_9.2")));
}

TEST(HandshakeServer, DropsTheOldestOfTooManyUnauthenticatedPeers) {
  RunningServer server(options_with(seconds(60), /*max_unauthenticated=*/4));
  const net::Socket oldest = unauthenticated(server);
  std::vector<net::Socket> more;
  for (int i = 0; i < 8; ++i) more.push_back(unauthenticated(server));
  EXPECT_TRUE(is_hung_up(oldest));
  EXPECT_TRUE(server.enter(1));
}

TEST(HandshakeServer, DropsSilentPeersFirst) {
  RunningServer server(options_with(seconds(60), /*max_unauthenticated=*/4));
  std::optional<ClientHandshake> started;
  do {  // Again if the server answers so soon that the handshake is complete.
    started.emplace(std::move(*net::connect_to(server.address(), test::soon_enough())), "the gate",
                    kShared, Claims{.from = 1, .to = 0, .world_size = 4});
    while (started->wanted_events() == POLLOUT && !started->done()) {  // Its first message is sent
      ASSERT_TRUE(net::wait_for(started->socket(), POLLOUT, test::soon_enough()));
      ASSERT_TRUE(started->advance());
    }
  } while (started->done());
  ClientHandshake& genuine = *started;
  ASSERT_TRUE(net::wait_for(genuine.socket(), POLLIN, test::soon_enough()));  // and has been read.
  std::vector<net::Socket> silent;
  for (int i = 0; i < 20; ++i) silent.push_back(unauthenticated(server));
  EXPECT_TRUE(is_hung_up(silent.front()));
  while (!genuine.done()) {
    ASSERT_TRUE(net::wait_for(genuine.socket(), genuine.wanted_events(), test::soon_enough()));
    const Status moved = genuine.advance();
    ASSERT_TRUE(moved) << moved.error().message;
  }
}

/// A listener that cannot accept at first, as in a process with too many open files.
class ListenerOutOfDescriptors final : public Listener {
 public:
  ListenerOutOfDescriptors(net::Socket listener, int failures)
      : listener_(std::move(listener)), failures_(failures) {}

  const net::Socket& socket() const override { return listener_; }
  Result<std::optional<net::Accepted>> accept() override {
    if (failures_-- > 0) return failure(ErrorKind::system, "Too many open files");
    return net::accept_one(listener_);
  }

 private:
  net::Socket listener_;
  int failures_;
};

TEST(HandshakeServer, AcceptsAgainWhenThereAreDescriptors) {
  net::Socket listener = std::move(*net::listen_on(test::any_loopback_port()));
  const net::SocketAddress address = net::local_address(listener);
  Listeners listeners;
  listeners.push_back(
      std::make_unique<ListenerOutOfDescriptors>(std::move(listener), /*failures=*/3));
  RunningServer server(address, std::move(listeners), options_with(seconds(60)));
  const auto socket = server.enter(1);
  EXPECT_TRUE(socket) << socket.error().message;
}

TEST(HandshakeServer, ALongShortageOfDescriptorsIsAnError) {
  net::Socket listener = std::move(*net::listen_on(test::any_loopback_port()));
  const net::Socket caller = std::move(*net::start_connect(net::local_address(listener)));
  Listeners listeners;
  listeners.push_back(std::make_unique<ListenerOutOfDescriptors>(std::move(listener), 1'000'000));
  HandshakeServer::Options options = options_with(seconds(60));
  options.shortage = milliseconds(200);
  HandshakeServer server(
      test::kClock, std::move(listeners), options, [](const Claims&) { return Verdict::accepted; },
      [](const AuthenticatedConnection&) {});
  net::PollSet set;
  int rounds = 0;
  for (Status status; status; ++rounds) {
    set.clear();
    set.wait(server.watch(set, test::soon_enough()));
    status = server.advance(set);
    if (!status) {
      EXPECT_EQ(status.error().message, "Too many open files");
    }
  }
  EXPECT_LE(rounds, 10);  // It rests in between, instead of spinning.
}

}  // namespace
}  // namespace gradwire::bootstrap
