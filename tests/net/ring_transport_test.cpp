// Behavior specific to shared memory: processes that sleep, die, or cannot share.

#include <csignal>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gradwire/net/local_socket.h"
#include "gradwire/net/shm/neighbors.h"
#include "tests/net/ring_pair.h"
#include "tests/support/host.h"

namespace gradwire::net {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using test::await_bytes;
using test::connected_pair;
using test::Data;
using test::open_pair;
using test::random_data;
using test::SocketPair;
using test::soon_enough;
using test::to_peer_of;
using test::write;

/// Opens the rank's end in a child process, which runs `body` and exits.
template <class Body>
pid_t in_child(Rank rank, Socket socket, Body body) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  std::vector<Socket> sockets;
  sockets.push_back(std::move(socket));
  auto transport =
      open_transport(test::connections_of(rank, std::move(sockets)), {1 - rank}, soon_enough());
  if (!transport) ::_exit(100);
  body(std::move(*transport));
  ::_exit(0);
}

std::unique_ptr<PollingTransport> open_alone(Rank rank, Socket socket) {
  std::vector<Socket> sockets;
  sockets.push_back(std::move(socket));
  auto transport =
      open_transport(test::connections_of(rank, std::move(sockets)), {1 - rank}, soon_enough());
  EXPECT_TRUE(transport) << transport.error().message;
  return std::move(*transport);
}

int status_of(pid_t child) {
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return status;
}

TEST(RingTransport, ReadsInPlaceAndNeedsNoChecksums) {
  const auto pair = open_pair(1, true);
  const Data data = random_data(100);
  ASSERT_EQ(write(pair->of(0), 0, data), data.size());
  EXPECT_EQ(pair->of(0).delivered(to_peer_of(0)), data.size());
  EXPECT_TRUE(pair->of(1).reads_in_place(to_peer_of(1)));
  EXPECT_FALSE(pair->of(1).needs_checksums(to_peer_of(1)));
  const ConstBytes there = *pair->of(1).peek(to_peer_of(1));
  EXPECT_TRUE(std::ranges::equal(there, data));
  pair->of(1).consume(to_peer_of(1), 60);
  const ConstBytes rest = *pair->of(1).peek(to_peer_of(1));
  EXPECT_EQ(rest.data(), there.data() + 60);
  EXPECT_EQ(rest.size(), 40u);
}

TEST(RingTransport, ShowsInOnePieceWhatGoesRoundTheEnd) {
  const auto pair = open_pair(1, true);
  // A ring that was never full restarts at its beginning when all has been read.
  ASSERT_EQ(write(pair->of(0), 0, Data(ring_bytes_for(2))), ring_bytes_for(2));
  pair->of(1).consume(to_peer_of(1), ring_bytes_for(2));
  const Data data = random_data(ring_bytes_for(2) / 4 * 3);
  for (int i = 0; i < 5; ++i) {
    ASSERT_EQ(write(pair->of(0), 0, data), data.size());
    const ConstBytes there = *pair->of(1).peek(to_peer_of(1));
    ASSERT_TRUE(std::ranges::equal(there, data)) << "round " << i;
    pair->of(1).consume(to_peer_of(1), data.size());
  }
}

TEST(RingTransport, EventsAreEdges) {
  const auto pair = open_pair(1, true);
  const Data data = random_data(2 * ring_bytes_for(2));
  ASSERT_EQ(write(pair->of(0), 0, data), ring_bytes_for(2));
  const auto events_of = [&](Rank rank) {
    std::vector<ReadyEvent> events;
    pair->of(rank).poll(milliseconds(20), events);
    return events.size();
  };
  EXPECT_EQ(events_of(1), 1u);
  EXPECT_EQ(events_of(1), 0u);  // Although nothing was read.
  EXPECT_EQ(events_of(0), 0u);
  pair->of(1).consume(to_peer_of(1), ring_bytes_for(2));
  EXPECT_EQ(events_of(0), 1u);
  EXPECT_EQ(events_of(0), 0u);  // Although nothing was written.
  EXPECT_EQ(events_of(1), 0u);
}

TEST(RingTransport, EndThatWasReportedBeforeTheLastBytesWereReadIsReportedAgain) {
  const auto pair = open_pair(1, true);
  const Data data = random_data(10);
  ASSERT_EQ(write(pair->of(0), 0, data), data.size());
  pair->of(0).close(to_peer_of(0));
  std::vector<ReadyEvent> events;
  for (int i = 0; i < 3; ++i) pair->of(1).poll(milliseconds(20), events);
  Data buffer(100);
  const Bytes piece(buffer);
  ASSERT_EQ(pair->of(1).read(to_peer_of(1), std::span(&piece, 1)).value_or(0), data.size());
  pair->of(1).poll(seconds(20), events);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_TRUE(events[0].readable);
  EXPECT_FALSE(pair->of(1).read(to_peer_of(1), std::span(&piece, 1)));
}

TEST(RingTransport, LastWordsOfADeadProcessAreRead) {
  SocketPair pair = connected_pair();
  const Data data = random_data(50'000);
  const pid_t child = in_child(1, std::move(pair.second), [&](auto transport) {
    ConstBytes rest = data;
    if (transport->write({.peer = 0, .rail = 0}, std::span(&rest, 1)).value_or(0) != rest.size()) {
      ::_exit(1);
    }
    ::kill(::getpid(), SIGKILL);
  });
  pair.second.close();
  const auto transport = open_alone(0, std::move(pair.first));
  Data got;
  while (got.size() < data.size()) {
    const ConstBytes there = await_bytes(*transport, 0);
    if (there.empty()) break;
    got.insert(got.end(), there.begin(), there.end());
    transport->consume({.peer = 1, .rail = 0}, there.size());
  }
  EXPECT_TRUE(got == data);
  std::vector<ReadyEvent> events;
  Result<ConstBytes> end = ConstBytes();
  for (const Deadline deadline = soon_enough(); end && !deadline.passed();) {
    end = transport->peek({.peer = 1, .rail = 0});
    if (end) transport->poll(deadline.left(), events);
  }
  ASSERT_FALSE(end);
  EXPECT_EQ(end.error().kind, ErrorKind::disconnected);
  EXPECT_EQ(transport->write({.peer = 1, .rail = 0}, {}).error().kind, ErrorKind::disconnected);
  EXPECT_TRUE(WIFSIGNALED(status_of(child)));
}

TEST(RingTransport, BlockedWriterLearnsThatItsReaderDied) {
  SocketPair pair = connected_pair();
  const pid_t child = in_child(1, std::move(pair.second), [&](auto transport) {
    (void)await_bytes(*transport, 1);
    ::kill(::getpid(), SIGKILL);
  });
  pair.second.close();
  const auto transport = open_alone(0, std::move(pair.first));
  const Data data = random_data(10'000'000);
  const ConstBytes all(data);
  Result<std::size_t> taken = std::size_t{0};
  std::vector<ReadyEvent> events;
  for (const Deadline deadline = soon_enough(); taken && !deadline.passed();) {
    taken = transport->write({.peer = 1, .rail = 0}, std::span(&all, 1));
    if (taken) transport->poll(deadline.left(), events);
  }
  ASSERT_FALSE(taken);
  EXPECT_EQ(taken.error().kind, ErrorKind::disconnected);
  EXPECT_TRUE(WIFSIGNALED(status_of(child)));
}

/// A process that may not create files of any size cannot create shared memory either.
TEST(RingTransport, GoesOverTcpWhereMemoryCannotBeShared) {
  SocketPair pair = connected_pair();
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit none = {0, 0};
    ::setrlimit(RLIMIT_FSIZE, &none);
    const auto transport = open_alone(1, std::move(pair.second));
    const Data data = random_data(100);
    const bool shared = transport->reads_in_place({.peer = 0, .rail = 0});
    if (shared || write(*transport, 1, data) != data.size()) ::_exit(1);
    ::_exit(0);
  }
  pair.second.close();
  const auto transport = open_alone(0, std::move(pair.first));
  EXPECT_FALSE(transport->reads_in_place({.peer = 1, .rail = 0}));
  EXPECT_TRUE(transport->needs_checksums({.peer = 1, .rail = 0}));
  Data got(100);
  const Bytes piece(got);
  std::vector<ReadyEvent> events;
  std::size_t count = 0;
  for (const Deadline deadline = soon_enough(); count == 0 && !deadline.passed();) {
    transport->poll(deadline.left(), events);
    count = transport->read({.peer = 1, .rail = 0}, std::span(&piece, 1)).value_or(100);
  }
  EXPECT_TRUE(got == random_data(100));
  EXPECT_EQ(status_of(child), 0);
}

TEST(RingTransport, ANeighborThatHangsUpIsNamed) {
  SocketPair pair = connected_pair();
  pair.second.close();
  std::vector<Socket> sockets;
  sockets.push_back(std::move(pair.first));
  const auto transport =
      open_transport(test::connections_of(0, std::move(sockets)), {1}, soon_enough());
  ASSERT_FALSE(transport);
  EXPECT_EQ(transport.error().kind, ErrorKind::disconnected);
  EXPECT_THAT(transport.error().message, testing::HasSubstr("rank 1"));
}

TEST(RingTransport, ASilentNeighborIsNamed) {
  SocketPair pair = connected_pair();
  std::vector<Socket> sockets;
  sockets.push_back(std::move(pair.first));
  const auto transport = open_transport(test::connections_of(1, std::move(sockets)), {0},
                                        Deadline::after(test::kClock, milliseconds(50)));
  ASSERT_FALSE(transport);
  EXPECT_EQ(transport.error().kind, ErrorKind::timeout);
  EXPECT_THAT(transport.error().message, testing::HasSubstr("rank 0"));
}

/// A peer that is not the expected one, or is broken; rank 0 invites first.
TEST(RingTransport, AnAnswerThatIsNeitherYesNorNoIsAnError) {
  constexpr std::size_t kInvitation = 33;
  for (const Rank self : {0, 1}) {
    SocketPair pair = connected_pair();
    std::vector<char> said(self == 0 ? 0 : kInvitation, '\0');
    said.push_back('\7');
    ASSERT_EQ(::write(pair.second.descriptor(), said.data(), said.size()),
              static_cast<ssize_t>(said.size()));
    std::vector<Socket> sockets;
    sockets.push_back(std::move(pair.first));
    const auto transport =
        open_transport(test::connections_of(self, std::move(sockets)), {1 - self}, soon_enough());
    ASSERT_FALSE(transport);
    EXPECT_EQ(transport.error().kind, ErrorKind::corrupted);
    EXPECT_THAT(transport.error().message,
                testing::HasSubstr("rank " + std::to_string(1 - self) + " sent 7"));
  }
}

/// Opens transports of `ranks` neighbors, each on a thread while they connect.
std::vector<std::unique_ptr<PollingTransport>> open_all(int ranks) {
  const auto count = static_cast<std::size_t>(ranks);
  std::vector<Connections> connections(count);
  for (std::size_t r = 0; r < count; ++r) {
    connections[r].rank = static_cast<Rank>(r);
    connections[r].sockets.resize(count);
    connections[r].names.resize(count);
  }
  for (std::size_t a = 0; a < count; ++a) {
    for (std::size_t b = a + 1; b < count; ++b) {
      SocketPair pair = connected_pair();
      connections[a].sockets[b].push_back(std::move(pair.first));
      connections[a].names[b].push_back("rank " + std::to_string(b));
      connections[b].sockets[a].push_back(std::move(pair.second));
      connections[b].names[a].push_back("rank " + std::to_string(a));
    }
  }
  std::vector<std::unique_ptr<PollingTransport>> transports(count);
  std::vector<std::thread> threads;
  for (Rank r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      std::vector<Rank> others;
      for (Rank other = 0; other < ranks; ++other) {
        if (other != r) others.push_back(other);
      }
      auto opened = open_transport(std::move(connections[static_cast<std::size_t>(r)]), others,
                                   soon_enough());
      ASSERT_TRUE(opened) << opened.error().message;
      transports[static_cast<std::size_t>(r)] = std::move(*opened);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return transports;
}

TEST(RingTransport, ManyNeighborsConnectAndExchangeData) {
  constexpr int kRanks = 12;
  const auto transports = open_all(kRanks);
  const auto of = [&](Rank r) -> PollingTransport& {
    return *transports[static_cast<std::size_t>(r)];
  };
  for (Rank from = 0; from < kRanks; ++from) {
    for (Rank to = 0; to < kRanks; ++to) {
      if (to == from) continue;
      const std::array<std::byte, 2> ball = {static_cast<std::byte>(from),
                                             static_cast<std::byte>(to)};
      const ConstBytes piece(ball);
      ASSERT_EQ(of(from).write({.peer = to, .rail = 0}, std::span(&piece, 1)).value_or(0), 2u);
    }
  }
  for (Rank to = 0; to < kRanks; ++to) {
    for (Rank from = 0; from < kRanks; ++from) {
      if (to == from) continue;
      const ConstBytes there = *of(to).peek({.peer = from, .rail = 0});
      ASSERT_EQ(there.size(), 2u);
      EXPECT_EQ(there[0], static_cast<std::byte>(from));
      EXPECT_EQ(there[1], static_cast<std::byte>(to));
    }
  }
}

TEST(RingTransport, RingsOfManyRanksStayInBounds) {
  EXPECT_EQ(ring_bytes_for(1), ring_bytes_for(2));
  for (std::size_t ranks = 2; ranks <= 256; ++ranks) {
    EXPECT_GE(ring_bytes_for(ranks), 16u * 1024);
    EXPECT_LE(ring_bytes_for(ranks), 2u * 1024 * 1024);
    EXPECT_LE(ring_bytes_for(ranks) * (ranks - 1), 4u * 1024 * 1024);
  }
}

}  // namespace
}  // namespace gradwire::net
