#include "gradwire/net/tcp_transport.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <linux/sockios.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include "gradwire/base/check.h"
#include "gradwire/net/system_failure.h"

namespace gradwire {
namespace {

constexpr std::size_t kPiecesACall = 64;
constexpr std::size_t kEventsACall = 64;
constexpr std::uint64_t kWakeup = ~std::uint64_t{0};
constexpr std::uint32_t kEndEvents = EPOLLRDHUP | EPOLLHUP | EPOLLERR;

/// Some pieces as the kernel wants them.
struct Batch {
  std::array<iovec, kPiecesACall> vectors;
  std::size_t count = 0;
  std::size_t bytes = 0;

  template <class Pieces>
  explicit Batch(Pieces pieces) {
    count = std::min(pieces.size(), kPiecesACall);
    for (std::size_t i = 0; i < count; ++i) {
      // sendmsg does not write through it.
      vectors[i] = {const_cast<std::byte*>(pieces[i].data()), pieces[i].size()};
      bytes += pieces[i].size();
    }
  }

  msghdr header() {
    msghdr message = {};
    message.msg_iov = vectors.data();
    message.msg_iovlen = count;
    return message;
  }
};

bool is_not_now(int cause) {
  return cause == EAGAIN || cause == EWOULDBLOCK;
}

/// What the kernel says of a connection that failed: 0 for the peer's orderly end of stream.
std::string words_for(int cause, const std::string& name, Duration dead_after) {
  switch (cause) {
    case 0:
      return fmt::format("{} closed the connection", name);
    case ECONNRESET:
    case EPIPE:
      return fmt::format("the connection to {} was reset: its process has probably died", name);
    case ETIMEDOUT:
      return fmt::format("the link to {} is dead: it took no data{}", name,
                         dead_after > Duration::zero()
                             ? fmt::format(" for {} ms", milliseconds_of(dead_after))
                             : "");
    case EHOSTUNREACH:
    case ENETUNREACH:
    case ENETDOWN:
      return fmt::format("the link to {} is cut: {}", name, words_of(cause));
    default:
      return fmt::format("the connection to {} broke: {}", name, words_of(cause));
  }
}

/// Throws away what has arrived, without copying it (MSG_TRUNC, see tcp(7)). False at the end of
/// the stream, orderly or not.
bool discard_input(int descriptor) {
  constexpr std::size_t kMost = 1 << 30;
  for (;;) {
    const ssize_t count = ::recv(descriptor, nullptr, kMost, MSG_TRUNC | MSG_DONTWAIT);
    if (count > 0) continue;
    if (count < 0 && errno == EINTR) continue;
    return count < 0 && is_not_now(errno);
  }
}

/// Whether all but our end of stream (which counts as one byte) is acknowledged.
bool all_delivered(int descriptor) {
  int unacknowledged = 0;
  return ::ioctl(descriptor, SIOCOUTQ, &unacknowledged) != 0 || unacknowledged <= 1;
}

/// Whether closing the descriptor now can no longer cost the peer any of our bytes.
bool may_close(int descriptor) {
  return !discard_input(descriptor) || all_delivered(descriptor);
}

/// Waits until the peers' kernels have all that was written; there is no event for that, so it
/// looks each millisecond. Usually the first look suffices.
void linger(std::vector<pollfd> streams, Deadline deadline) {
  for (;;) {
    std::erase_if(streams, [](const pollfd& stream) { return may_close(stream.fd); });
    if (streams.empty() || deadline.passed()) return;
    ::poll(streams.data(), streams.size(), 1);
  }
}

}  // namespace

Result<std::unique_ptr<TcpTransport>> TcpTransport::create(std::vector<Socket> sockets,
                                                           std::vector<std::string> names,
                                                           Duration dead_after) {
  GRADWIRE_CHECK(sockets.size() == names.size());
  std::unique_ptr<TcpTransport> transport(
      new TcpTransport(std::move(sockets), std::move(names), dead_after));
  if (Status watched = transport->watch_all(); !watched) {
    return tl::unexpected<Error>(watched.error());
  }
  return transport;
}

TcpTransport::TcpTransport(std::vector<Socket> sockets, std::vector<std::string> names,
                           Duration dead_after)
    : peers_(sockets.size()),
      dead_after_(dead_after),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      wakeup_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    peers_[i].socket = std::move(sockets[i]);
    peers_[i].name = std::move(names[i]);
  }
}

TcpTransport::~TcpTransport() {
  std::vector<pollfd> streams;
  for (const Peer& peer : peers_) {
    if (!peer.socket.valid()) continue;
    ::shutdown(peer.socket.descriptor(), SHUT_WR);
    streams.push_back({peer.socket.descriptor(), POLLIN, 0});
  }
  linger(std::move(streams), Deadline::after(kLinger));
}

Status TcpTransport::watch_all() {
  if (!epoll_.valid() || !wakeup_.valid()) return system_failure("cannot make an epoll instance");
  const auto watch = [&](const Socket& socket, std::uint32_t events, std::uint64_t tag) {
    epoll_event event = {.events = events | EPOLLET, .data = {.u64 = tag}};
    return ::epoll_ctl(epoll_.descriptor(), EPOLL_CTL_ADD, socket.descriptor(), &event) == 0;
  };
  // Edge-triggered, so that the counter of the eventfd need never be read back.
  bool all = watch(wakeup_, EPOLLIN, kWakeup);
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    if (!peers_[i].socket.valid()) continue;
    all = all && watch(peers_[i].socket, EPOLLIN | EPOLLOUT | EPOLLRDHUP, i);
  }
  if (!all) return system_failure("cannot watch the connections of the job");
  return {};
}

TcpTransport::Peer& TcpTransport::peer_of(Rank rank) {
  GRADWIRE_CHECK(rank >= 0 && static_cast<std::size_t>(rank) < peers_.size());
  Peer& peer = peers_[static_cast<std::size_t>(rank)];
  GRADWIRE_CHECK(peer.socket.valid());
  return peer;
}

Error TcpTransport::broken_by(const Peer& peer, int cause) const {
  return {ErrorKind::disconnected, words_for(cause, peer.name, dead_after_)};
}

Result<std::size_t> TcpTransport::write(Rank rank, std::span<const ConstBytes> pieces) {
  Peer& peer = peer_of(rank);
  if (peer.broken) return tl::unexpected<Error>(*peer.broken);
  std::size_t taken = 0;
  while (!pieces.empty()) {
    Batch batch(pieces);
    const msghdr message = batch.header();
    const ssize_t count = ::sendmsg(peer.socket.descriptor(), &message, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && is_not_now(errno)) return taken;
    if (count < 0) {
      peer.broken = broken_by(peer, errno);
      return tl::unexpected<Error>(*peer.broken);
    }
    taken += static_cast<std::size_t>(count);
    // The kernel took what it had room for, and makes an edge when it has room again.
    if (static_cast<std::size_t>(count) < batch.bytes) return taken;
    pieces = pieces.subspan(batch.count);
  }
  return taken;
}

Result<std::size_t> TcpTransport::read(Rank rank, std::span<const Bytes> pieces) {
  Peer& peer = peer_of(rank);
  if (peer.closed) return tl::unexpected<Error>(*peer.broken);
  std::size_t got = 0;
  while (!pieces.empty()) {
    Batch batch(pieces);
    pieces = pieces.subspan(batch.count);
    if (batch.bytes == 0) continue;
    msghdr message = batch.header();
    ssize_t count;
    do {
      count = ::recvmsg(peer.socket.descriptor(), &message, MSG_DONTWAIT);
    } while (count < 0 && errno == EINTR);
    if (count < 0 && is_not_now(errno)) return got;
    if (count <= 0) {
      // A broken write may have learnt the cause before, and the kernel tells it only once.
      if (!peer.broken) peer.broken = broken_by(peer, count == 0 ? 0 : errno);
      if (got == 0) return tl::unexpected<Error>(*peer.broken);
      report_again(rank);
      return got;
    }
    got += static_cast<std::size_t>(count);
    if (static_cast<std::size_t>(count) < batch.bytes) {
      if (peer.ended.load(std::memory_order_acquire)) report_again(rank);
      return got;
    }
  }
  return got;
}

void TcpTransport::close(Rank rank) {
  Peer& peer = peer_of(rank);
  if (peer.closed) return;
  if (!peer.broken) {
    peer.broken = Error{ErrorKind::aborted,
                        fmt::format("the connection to {} was closed on this side", peer.name)};
  }
  ::shutdown(peer.socket.descriptor(), SHUT_WR);
  peer.closed = true;
}

std::string TcpTransport::describe(Rank rank) const {
  GRADWIRE_CHECK(rank >= 0 && static_cast<std::size_t>(rank) < peers_.size());
  return peers_[static_cast<std::size_t>(rank)].name;
}

void TcpTransport::poll(Duration timeout, std::vector<ReadyEvent>& events) {
  events.clear();
  if (take_repeats(events)) timeout = Duration::zero();
  std::array<epoll_event, kEventsACall> ready;
  const int count = ::epoll_wait(epoll_.descriptor(), ready.data(), static_cast<int>(ready.size()),
                                 milliseconds_of(timeout));
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = ready[static_cast<std::size_t>(i)];
    if (event.data.u64 == kWakeup) {
      take_repeats(events);
    } else {
      add_event(static_cast<Rank>(event.data.u64), event.events, events);
    }
  }
}

void TcpTransport::add_event(Rank rank, std::uint32_t happened, std::vector<ReadyEvent>& events) {
  Peer& peer = peer_of(rank);
  if (peer.closed) {
    discard_input(peer.socket.descriptor());
    return;
  }
  const bool ended = (happened & kEndEvents) != 0;
  if (ended) peer.ended.store(true, std::memory_order_release);
  events.push_back({.peer = rank,
                    .readable = ended || (happened & EPOLLIN) != 0,
                    .writable = ended || (happened & EPOLLOUT) != 0});
}

void TcpTransport::wake() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wakeup_.descriptor(), &one, sizeof one);
}

/// For the case that the stream had already ended when its last bytes were read.
void TcpTransport::report_again(Rank rank) {
  {
    const std::lock_guard lock(repeats_mutex_);
    repeats_.push_back(rank);
  }
  wake();
}

bool TcpTransport::take_repeats(std::vector<ReadyEvent>& events) {
  const std::lock_guard lock(repeats_mutex_);
  for (const Rank rank : repeats_) events.push_back({.peer = rank, .readable = true});
  const bool any = !repeats_.empty();
  repeats_.clear();
  return any;
}

}  // namespace gradwire
