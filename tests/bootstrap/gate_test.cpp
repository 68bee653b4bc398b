#include "gradwire/bootstrap/gate.h"

#include <atomic>
#include <thread>

#include <gtest/gtest.h>

#include "tests/net/loopback.h"

namespace gradwire {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const SharedSecret kShared = {.secret = "open sesame", .purpose = "test"};

/// A gate that runs on its own thread.
class RunningGate {
 public:
  explicit RunningGate(Gate::Options options)
      : RunningGate(std::move(*listen_on(test::any_loopback_port())), std::move(options)) {}

  RunningGate(Socket listener, Gate::Options options)
      : RunningGate{local_address(listener), doors_of(std::move(listener)), std::move(options)} {}

  RunningGate(SocketAddress address, Doors doors, Gate::Options options)
      : address_(address),
        gate_(
            std::move(doors), std::move(options), [](const Claims&) { return Verdict::accepted; },
            [this](Admitted admitted) { entered_.push_back(std::move(admitted)); }),
        thread_([this] { run(); }) {}

  ~RunningGate() {
    stop_ = true;
    thread_.join();
  }

  const SocketAddress& address() const { return address_; }

  /// Connects an authenticated client; returns once it is admitted.
  Result<Socket> enter(Rank rank) {
    return connect_and_greet(address_, kShared, {.from = rank, .to = 0, .world_size = 4},
                             test::soon_enough());
  }

 private:
  void run() {
    PollSet set;
    while (!stop_) {
      set.clear();
      set.wait(gate_.watch(set, Deadline::after(milliseconds(5))));
      ASSERT_TRUE(gate_.advance(set));
    }
  }

  std::vector<Admitted> entered_;
  SocketAddress address_;
  Gate gate_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

Gate::Options options_with(Duration timeout, std::size_t most_strangers = 128) {
  return {.shared = kShared,
          .world_size = 4,
          .expected = 4,
          .timeout = timeout,
          .most_strangers = most_strangers};
}

Socket stranger(const RunningGate& gate, std::string_view says = "") {
  auto socket = connect_to(gate.address(), test::soon_enough());
  EXPECT_TRUE(socket);
  ::send(socket->descriptor(), says.data(), says.size(), MSG_NOSIGNAL);
  return std::move(*socket);
}

/// Waits until the gate has closed this connection.
bool is_hung_up(const Socket& socket) {
  char byte;
  while (wait_for(socket, POLLIN, test::soon_enough())) {
    const ssize_t count = ::recv(socket.descriptor(), &byte, 1, 0);
    if (count == 0 || (count < 0 && errno != EAGAIN)) return true;
  }
  return false;
}

TEST(Gate, LetsGenuineClientsInWhileStrangersSayNothing) {
  RunningGate gate(options_with(seconds(60)));
  std::vector<Socket> silent;
  for (int i = 0; i < 100; ++i) silent.push_back(stranger(gate, i % 2 == 0 ? "" : "GRAD"));
  for (Rank rank = 0; rank < 4; ++rank) {
    const auto socket = gate.enter(rank);
    EXPECT_TRUE(socket) << socket.error().message;
  }
}

TEST(Gate, SilenceEndsAtTheDeadline) {
  RunningGate gate(options_with(milliseconds(100)));
  EXPECT_TRUE(is_hung_up(stranger(gate)));
}

TEST(Gate, AByteNowAndThenDoesNotExtendTheDeadline) {
  RunningGate gate(options_with(milliseconds(200)));
  const Socket slow = stranger(gate);
  const std::string hello = "GRADWIRE" + std::string(56, '\0');
  bool open = true;
  // The handshake would take 6.4 s at this pace.
  for (std::size_t i = 0; open && i < hello.size(); ++i) {
    ::send(slow.descriptor(), &hello[i], 1, MSG_NOSIGNAL);
    open = !wait_for(slow, POLLIN | POLLRDHUP, Deadline::after(milliseconds(100)));
  }
  EXPECT_FALSE(open);
}

TEST(Gate, GarbageIsHungUpOnAtOnce) {
  RunningGate gate(options_with(seconds(60)));
  EXPECT_TRUE(is_hung_up(stranger(gate, "SSH-2.0-OpenSSH_9.2")));
}

TEST(Gate, OfTooManyStrangersTheOldestGoes) {
  RunningGate gate(options_with(seconds(60), /*most_strangers=*/4));
  const Socket oldest = stranger(gate);
  std::vector<Socket> more;
  for (int i = 0; i < 8; ++i) more.push_back(stranger(gate));
  EXPECT_TRUE(is_hung_up(oldest));
  EXPECT_TRUE(gate.enter(1));
}

TEST(Gate, OfTooManyThoseThatHaveSaidNothingGoFirst) {
  RunningGate gate(options_with(seconds(60), /*most_strangers=*/4));
  ClientHandshake genuine(std::move(*connect_to(gate.address(), test::soon_enough())), "the gate",
                          kShared, {.from = 1, .to = 0, .world_size = 4});
  while (genuine.wanted_events() == POLLOUT) {  // Its first message is sent
    ASSERT_TRUE(wait_for(genuine.socket(), POLLOUT, test::soon_enough()));
    ASSERT_TRUE(genuine.advance());
  }
  ASSERT_TRUE(wait_for(genuine.socket(), POLLIN, test::soon_enough()));  // and has been read.
  std::vector<Socket> silent;
  for (int i = 0; i < 20; ++i) silent.push_back(stranger(gate));
  EXPECT_TRUE(is_hung_up(silent.front()));
  while (!genuine.done()) {
    ASSERT_TRUE(wait_for(genuine.socket(), genuine.wanted_events(), test::soon_enough()));
    const Status moved = genuine.advance();
    ASSERT_TRUE(moved) << moved.error().message;
  }
}

/// A door that cannot accept at first, as in a process with too many open files.
class DoorOutOfDescriptors final : public Door {
 public:
  DoorOutOfDescriptors(Socket listener, int failures)
      : listener_(std::move(listener)), failures_(failures) {}

  const Socket& socket() const override { return listener_; }
  Result<std::optional<Accepted>> accept() override {
    if (failures_-- > 0) return failure(ErrorKind::system, "Too many open files");
    return accept_one(listener_);
  }

 private:
  Socket listener_;
  int failures_;
};

TEST(Gate, OpensAgainWhenThereAreDescriptorsAgain) {
  Socket listener = std::move(*listen_on(test::any_loopback_port()));
  const SocketAddress address = local_address(listener);
  Doors doors;
  doors.push_back(std::make_unique<DoorOutOfDescriptors>(std::move(listener), /*failures=*/3));
  RunningGate gate(address, std::move(doors), options_with(seconds(60)));
  const auto socket = gate.enter(1);
  EXPECT_TRUE(socket) << socket.error().message;
}

TEST(Gate, ALongShortageOfDescriptorsIsAnError) {
  Socket listener = std::move(*listen_on(test::any_loopback_port()));
  const Socket caller = std::move(*start_connect(local_address(listener)));
  Doors doors;
  doors.push_back(std::make_unique<DoorOutOfDescriptors>(std::move(listener), 1'000'000));
  Gate::Options options = options_with(seconds(60));
  options.shortage = milliseconds(200);
  Gate gate(
      std::move(doors), options, [](const Claims&) { return Verdict::accepted; },
      [](const Admitted&) {});
  PollSet set;
  int rounds = 0;
  for (Status status; status; ++rounds) {
    set.clear();
    set.wait(gate.watch(set, test::soon_enough()));
    status = gate.advance(set);
    if (!status) {
      EXPECT_EQ(status.error().message, "Too many open files");
    }
  }
  EXPECT_LE(rounds, 10);  // It rests in between, instead of spinning.
}

}  // namespace
}  // namespace gradwire
