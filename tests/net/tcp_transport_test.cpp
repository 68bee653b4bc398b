#include "gradwire/net/tcp_transport.h"

#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/base/random.h"
#include "tests/support/host.h"
#include "tests/support/loopback.h"

namespace gradwire::net {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;
using test::connected_pair;
using test::SocketPair;
using test::soon_enough;
using testing::HasSubstr;
using testing::IsEmpty;
using Data = std::vector<std::byte>;

constexpr StreamId kPeer{.peer = 1, .rail = 0};

/// A transport of rank 0 with one peer, rank 1.
std::unique_ptr<TcpTransport> transport_over(Socket socket, Duration dead_after = {}) {
  std::vector<std::vector<Socket>> sockets(2);
  sockets[1].push_back(std::move(socket));
  return std::move(*TcpTransport::create(test::kClock, std::move(sockets),
                                         {{}, {"rank 1 (host b)"}}, dead_after));
}

Data random_data(std::size_t size) {
  Random random(size);
  Data data(size);
  for (std::byte& byte : data) byte = static_cast<std::byte>(random.next());
  return data;
}

ConstBytes as_bytes(std::string_view text) {
  return std::as_bytes(std::span(text));
}

Result<std::size_t> write(TcpTransport& transport, ConstBytes data) {
  return transport.write(kPeer, std::span(&data, 1));
}

Result<std::size_t> read(TcpTransport& transport, Bytes data) {
  return transport.read(kPeer, std::span(&data, 1));
}

/// Waits for the next events.
std::vector<ReadyEvent> next_events(TcpTransport& transport) {
  std::vector<ReadyEvent> events;
  transport.poll(seconds(20), events);
  return events;
}

void await_readable(TcpTransport& transport) {
  const Deadline deadline = test::soon_enough();
  std::vector<ReadyEvent> events;
  while (!deadline.passed()) {
    transport.poll(deadline.left(), events);
    for (const ReadyEvent& event : events) {
      if (event.readable) return;
    }
  }
  FAIL() << "never readable";
}

/// Reads as a correct caller does: again only after an event, until an error.
struct Received {
  Data data;
  Error end;
};

Received read_to_end(TcpTransport& transport) {
  Received received;
  Data buffer(100'000);
  for (;;) {
    await_readable(transport);
    if (testing::Test::HasFatalFailure()) return received;
    for (;;) {
      const auto count = read(transport, buffer);
      if (!count) {
        received.end = count.error();
        return received;
      }
      received.data.insert(received.data.end(), buffer.begin(),
                           buffer.begin() + static_cast<std::ptrdiff_t>(*count));
      if (*count < buffer.size()) break;
    }
  }
}

void send_raw(const Socket& socket, std::string_view text) {
  ASSERT_EQ(::send(socket.descriptor(), text.data(), text.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(text.size()));
}

/// Closes the socket such that the peer sees a reset.
void reset(Socket& socket) {
  const struct linger now = {.l_onoff = 1, .l_linger = 0};
  ASSERT_EQ(setsockopt(socket.descriptor(), SOL_SOCKET, SO_LINGER, &now, sizeof now), 0);
  socket.close();
}

TEST(TcpTransport, CarriesMorePiecesThanOneCallTakes) {
  SocketPair pair = connected_pair();
  auto sender = transport_over(std::move(pair.first));
  auto receiver = transport_over(std::move(pair.second));
  const Data data = random_data(200 * 37);
  std::vector<ConstBytes> out;
  for (std::size_t i = 0; i < 200; ++i) out.push_back(ConstBytes(data).subspan(i * 37, 37));
  ASSERT_EQ(*sender->write(kPeer, out), data.size());

  Data got(data.size());
  std::vector<Bytes> in;
  for (std::size_t i = 0; i < 100; ++i) in.push_back(Bytes(got).subspan(i * 74, 74));
  await_readable(*receiver);
  // The loopback delivers all bytes before send returns.
  ASSERT_EQ(*receiver->read(kPeer, in), data.size());
  EXPECT_EQ(got, data);
}

TEST(TcpTransport, EmptyPiecesAreNoEndOfStream) {
  SocketPair pair = connected_pair();
  auto transport = transport_over(std::move(pair.first));
  EXPECT_EQ(*write(*transport, {}), 0u);
  EXPECT_EQ(*read(*transport, {}), 0u);
  EXPECT_EQ(*transport->read(kPeer, {}), 0u);
}

TEST(TcpTransport, TakesWhatFitsAndReportsWhenMoreDoes) {
  SocketPair pair = connected_pair();
  const int small = 8 * 1024;
  setsockopt(pair.first.descriptor(), SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
  tune_stream(pair.first, {});
  auto sender = transport_over(std::move(pair.first));
  auto receiver = transport_over(std::move(pair.second));
  const Data data = random_data(2'000'000);

  int partial = 0;
  std::thread sending([&] {
    ConstBytes rest = data;
    for (;;) {
      const auto count = write(*sender, rest);
      ASSERT_TRUE(count) << count.error().message;
      partial += *count > 0 && *count < rest.size();
      rest = rest.subspan(*count);
      if (rest.empty()) break;
      while (std::ranges::none_of(next_events(*sender), &ReadyEvent::writable)) {
        ASSERT_FALSE(HasFatalFailure());
      }
    }
    sender->close(kPeer);
  });
  const Received received = read_to_end(*receiver);
  sending.join();
  EXPECT_GT(partial, 0);
  EXPECT_TRUE(received.data == data);
}

TEST(TcpTransport, EventsAreEdges) {
  SocketPair pair = connected_pair();
  auto transport = transport_over(std::move(pair.first));
  send_raw(pair.second, "x");
  await_readable(*transport);
  std::vector<ReadyEvent> events;
  transport->poll(milliseconds(20), events);
  EXPECT_THAT(events, IsEmpty());
  send_raw(pair.second, "y");
  await_readable(*transport);
}

TEST(TcpTransport, FewBytesAreReportedAfterADelayOrWhenFewerAreExpected) {
  SocketPair pair = connected_pair();
  const int large = 1 << 20;
  setsockopt(pair.first.descriptor(), SOL_SOCKET, SO_RCVBUF, &large, sizeof large);
  auto transport = transport_over(std::move(pair.first));
  transport->expect(kPeer, 64 * 1024, 1);
  const Time begin = SteadyClock().now();
  std::vector<ReadyEvent> events = next_events(*transport);  // Writable, as always at the start.
  send_raw(pair.second, "x");
  transport->poll(Duration::zero(), events);
  if (events.empty()) await_readable(*transport);
  EXPECT_GE(SteadyClock().now() - begin, Transport::kMaxExpectDelay);
  send_raw(pair.second, std::string(200'000, 'y'));
  await_readable(*transport);
  transport->expect(kPeer, 1, 3);
  await_readable(*transport);
}

TEST(TcpTransport, EndThatCameWithTheLastBytesIsReportedAgain) {
  SocketPair pair = connected_pair();
  send_raw(pair.second, "last words");
  pair.second.close();
  auto transport = transport_over(std::move(pair.first));
  await_readable(*transport);
  Data buffer(100);
  ASSERT_EQ(*read(*transport, buffer), 10u);  // Less than fits: the caller must wait for an event.
  await_readable(*transport);
  const auto end = read(*transport, buffer);
  ASSERT_FALSE(end);
  EXPECT_EQ(end.error().kind, ErrorKind::disconnected);
  EXPECT_EQ(end.error().message, "rank 1 (host b) closed the connection");
}

TEST(TcpTransport, EndAfterTheLastBytesIsReported) {
  SocketPair pair = connected_pair();
  auto transport = transport_over(std::move(pair.first));
  send_raw(pair.second, "last words");
  await_readable(*transport);
  Data buffer(100);
  ASSERT_EQ(*read(*transport, buffer), 10u);
  pair.second.close();
  await_readable(*transport);
  EXPECT_FALSE(read(*transport, buffer));
}

TEST(TcpTransport, ResetIsNamed) {
  SocketPair pair = connected_pair();
  auto transport = transport_over(std::move(pair.first));
  reset(pair.second);
  const Received received = read_to_end(*transport);
  EXPECT_EQ(received.end.kind, ErrorKind::disconnected);
  EXPECT_EQ(received.end.message,
            "the connection to rank 1 (host b) was reset: its process has probably died");
}

TEST(TcpTransport, BytesBeforeAResetAreReadEvenAfterAFailedWrite) {
  SocketPair pair = connected_pair();
  auto transport = transport_over(std::move(pair.first));
  send_raw(pair.second, "why I leave");
  await_readable(*transport);
  reset(pair.second);
  await_readable(*transport);
  const auto written = write(*transport, as_bytes("x"));
  ASSERT_FALSE(written);
  EXPECT_THAT(written.error().message, HasSubstr("was reset"));
  Data buffer(11);
  ASSERT_EQ(*read(*transport, buffer), 11u);
  const auto end = read(*transport, buffer);
  ASSERT_FALSE(end);
  EXPECT_THAT(end.error().message, HasSubstr("was reset"));
}

TEST(TcpTransport, DestructionDeliversWhatWasWrittenThoughInputIsUnread) {
  SocketPair pair = connected_pair();
  auto receiver = transport_over(std::move(pair.second));
  auto leaver = transport_over(std::move(pair.first));
  ASSERT_GT(*write(*receiver, random_data(70'000)), 0u);
  // The leaver writes as much as the kernels accept: a part of it can be sent only once the
  // receiver reads.
  const Data data = random_data(1'000'000);
  std::size_t written = 0;
  while (const std::size_t taken = *write(*leaver, data)) written += taken;
  std::thread leaving([&] {
    leaver->close(kPeer);
    leaver->close(kPeer);
    leaver.reset();
  });
  const Received received = read_to_end(*receiver);
  leaving.join();
  EXPECT_EQ(received.data.size(), written);
}

TEST(TcpTransport, DestructionDoesNotWaitForAPeerThatNeverReads) {
  SocketPair pair = connected_pair();
  auto transport = transport_over(std::move(pair.first));
  const Data data = random_data(1'000'000);
  while (*write(*transport, data) > 0) continue;
  const Deadline deadline = soon_enough();
  transport.reset();
  EXPECT_FALSE(deadline.passed());
}

TEST(TcpTransport, AfterCloseNothingIsReadWrittenOrReported) {
  SocketPair pair = connected_pair();
  auto transport = transport_over(std::move(pair.first));
  next_events(*transport);  // Writable, as every new connection.
  transport->close(kPeer);
  send_raw(pair.second, "too late");
  std::vector<ReadyEvent> events;
  transport->poll(milliseconds(50), events);
  EXPECT_THAT(events, IsEmpty());
  Data buffer(10);
  EXPECT_EQ(read(*transport, buffer).error().kind, ErrorKind::aborted);
  EXPECT_EQ(write(*transport, as_bytes("x")).error().kind, ErrorKind::aborted);
}

TEST(TcpTransport, WakeEndsAPollUnderWayAndTheNextOne) {
  SocketPair pair = connected_pair();
  auto transport = transport_over(std::move(pair.first));
  next_events(*transport);
  std::vector<ReadyEvent> events;
  transport->wake();
  const Deadline deadline = soon_enough();
  transport->poll(hours(1), events);
  EXPECT_THAT(events, IsEmpty());
  std::thread waker([&] { transport->wake(); });
  transport->poll(hours(1), events);
  waker.join();
  EXPECT_FALSE(deadline.passed());
}

TEST(TcpTransport, PollsInOneThreadWhileAnotherReads) {
  SocketPair pair = connected_pair();
  auto sender = transport_over(std::move(pair.first));
  auto receiver = transport_over(std::move(pair.second));
  const Data data = random_data(3'000'000);
  std::thread sending([&] {
    ConstBytes rest = data;
    while (!rest.empty()) {
      const auto count = write(*sender, rest);
      ASSERT_TRUE(count);
      rest = rest.subspan(*count);
      if (!rest.empty()) next_events(*sender);
    }
    sender.reset();
  });
  std::atomic<int> readable = 0;
  std::atomic<bool> done = false;
  std::thread polling([&] {
    std::vector<ReadyEvent> events;
    while (!done) {
      receiver->poll(seconds(20), events);
      for (const ReadyEvent& event : events) readable += event.readable;
      readable.notify_one();
    }
  });
  Data got;
  Data buffer(10'000);
  for (int seen = 0;;) {
    readable.wait(seen);
    seen = readable;
    auto count = read(*receiver, buffer);
    for (; count && *count > 0; count = read(*receiver, buffer)) {
      got.insert(got.end(), buffer.begin(), buffer.begin() + static_cast<std::ptrdiff_t>(*count));
    }
    if (!count) break;
  }
  done = true;
  receiver->wake();
  polling.join();
  sending.join();
  EXPECT_TRUE(got == data);
}

TEST(TcpTransport, LinkThatAcknowledgesNothingIsDead) {
  SocketPair pair = connected_pair();
  const Duration dead_after = milliseconds(300);
  tune_stream(pair.first, dead_after);
  auto transport = transport_over(std::move(pair.first), dead_after);
  // The receiver does not read: the window closes, and the kernel's probes of it get no answer.
  const Data data = random_data(1'000'000);
  while (*write(*transport, data) > 0) continue;
  const Received received = read_to_end(*transport);
  EXPECT_EQ(received.end.kind, ErrorKind::disconnected);
  EXPECT_EQ(received.end.message,
            "the link to rank 1 (host b) is dead: it took no data for 300 ms");
}

TEST(TcpTransport, UnreadBytesInThePeersKernelCountAsDelivered) {
  SocketPair pair = connected_pair();
  auto sender = transport_over(std::move(pair.first));
  const Data data = random_data(1'000'000);
  std::size_t written = 0;
  while (const std::size_t taken = *write(*sender, data)) written += taken;
  // The receiver does not read: the rest waits on this side.
  const std::size_t delivered = sender->delivered(kPeer);
  EXPECT_GT(delivered, 0u);
  EXPECT_LT(delivered, written);
  Data got(written);
  std::size_t read = 0;
  while (read < delivered) {
    const Transfer transfer = receive_some(pair.second, Bytes(got).subspan(read));
    ASSERT_GT(transfer.bytes, 0u);
    read += transfer.bytes;
  }
  reset(pair.second);
  (void)read_to_end(*sender);
  // The count of a broken connection remains available.
  EXPECT_GE(sender->delivered(kPeer), delivered);
  EXPECT_LE(sender->delivered(kPeer), written);
  sender->close(kPeer);
  EXPECT_LE(sender->delivered(kPeer), written);
}

TEST(TcpTransport, DescribesPeersByTheirNames) {
  SocketPair pair = connected_pair();
  EXPECT_EQ(transport_over(std::move(pair.first))->describe(kPeer), "rank 1 (host b)");
}

}  // namespace
}  // namespace gradwire::net
