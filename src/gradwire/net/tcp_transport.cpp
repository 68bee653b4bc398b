#include "gradwire/net/tcp_transport.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include "gradwire/base/check.h"
#include "gradwire/net/tcp_info.h"

namespace gradwire::net {
namespace {

/// Maximum payload in bytes of a GSO burst in Linux (64 KiB - 1 - MAX_TCP_HEADER), with the default
/// limit of the network card (gso_max_size).
constexpr int kMaxBurst = 65536 - 1 - 320;

constexpr std::size_t kPiecesPerCall = 64;
constexpr std::size_t kEventsPerCall = 64;

/// Limits of SO_RCVLOWAT in expect(). At most 1 / kBufferDivisor of the receive buffer, so that the
/// sender can continue while this rank wakes up. At least kMinExpected bytes, because less is not
/// worth a system call.
constexpr std::size_t kBufferDivisor = 4;
constexpr std::size_t kMinExpected = 32 * 1024;
constexpr std::uint64_t kWakeup = ~std::uint64_t{0};
constexpr std::uint32_t kEndEvents = EPOLLRDHUP | EPOLLHUP | EPOLLERR;

/// Pieces as an iovec array for sendmsg and recvmsg.
struct Batch {
  std::array<iovec, kPiecesPerCall> vectors;
  std::size_t count = 0;
  std::size_t bytes = 0;

  template <class Pieces>
  explicit Batch(Pieces pieces) {
    count = std::min(pieces.size(), kPiecesPerCall);
    for (std::size_t i = 0; i < count; ++i) {
      // sendmsg does not write to it.
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

std::vector<std::size_t> first_of_each(const std::vector<std::vector<Socket>>& sockets) {
  std::vector<std::size_t> first = {0};
  for (const auto& rails : sockets) first.push_back(first.back() + rails.size());
  return first;
}

}  // namespace

Result<std::unique_ptr<TcpTransport>> TcpTransport::create(
    const Clock& clock, std::vector<std::vector<Socket>> sockets,
    std::vector<std::vector<std::string>> names, Duration dead_after, Socket wakeup) {
  GRADWIRE_CHECK(sockets.size() == names.size());
  std::unique_ptr<TcpTransport> transport(
      new TcpTransport(clock, std::move(sockets), std::move(names), dead_after, std::move(wakeup)));
  GRADWIRE_RETURN_IF_ERROR(transport->watch_all());
  return transport;
}

TcpTransport::TcpTransport(const Clock& clock, std::vector<std::vector<Socket>> sockets,
                           std::vector<std::vector<std::string>> names, Duration dead_after,
                           Socket wakeup)
    : clock_(clock),
      first_(first_of_each(sockets)),
      streams_(first_.back()),
      dead_after_(dead_after),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      wakeup_(std::move(wakeup)) {
  for (std::size_t p = 0; p < sockets.size(); ++p) {
    GRADWIRE_CHECK(sockets[p].size() == names[p].size());
    for (std::size_t i = 0; i < sockets[p].size(); ++i) {
      Stream& stream = streams_[first_[p] + i];
      stream.id = {static_cast<Rank>(p), static_cast<int>(i)};
      stream.socket = std::move(sockets[p][i]);
      stream.name = std::move(names[p][i]);
    }
  }
}

Socket TcpTransport::make_wakeup() {
  return Socket(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
}

TcpTransport::~TcpTransport() {
  close_on_fork_.reset();
  std::vector<pollfd> streams;
  for (const Stream& stream : streams_) {
    ::shutdown(stream.socket.descriptor(), SHUT_WR);
    streams.push_back({stream.socket.descriptor(), POLLIN, 0});
  }
  linger(std::move(streams), Deadline::after(clock_, kLinger));
}

Status TcpTransport::watch_all() {
  if (!epoll_.valid() || !wakeup_.valid()) return system_failure("cannot create an epoll instance");
  const auto watch = [&](const Socket& socket, std::uint32_t events, std::uint64_t tag) {
    epoll_event event = {.events = events | EPOLLET, .data = {.u64 = tag}};
    return ::epoll_ctl(epoll_.descriptor(), EPOLL_CTL_ADD, socket.descriptor(), &event) == 0;
  };
  // Edge-triggered, so that the eventfd's counter need not be read.
  bool all = watch(wakeup_, EPOLLIN, kWakeup);
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    all = all && watch(streams_[i].socket, EPOLLIN | EPOLLOUT | EPOLLRDHUP, i);
  }
  if (!all) return system_failure("cannot watch the connections of the job");
  std::vector<int> descriptors = {epoll_.descriptor(), wakeup_.descriptor()};
  for (const Stream& stream : streams_) descriptors.push_back(stream.socket.descriptor());
  close_on_fork_.emplace(std::move(descriptors));
  return {};
}

int TcpTransport::rails(Rank peer) const {
  const auto p = static_cast<std::size_t>(peer);
  GRADWIRE_CHECK(peer >= 0 && p + 1 < first_.size());
  return static_cast<int>(first_[p + 1] - first_[p]);
}

std::size_t TcpTransport::index_of(StreamId stream) const {
  GRADWIRE_CHECK(stream.rail >= 0 && stream.rail < rails(stream.peer));
  return first_[static_cast<std::size_t>(stream.peer)] + static_cast<std::size_t>(stream.rail);
}

void TcpTransport::encrypt(StreamId id, std::unique_ptr<TlsStream> tls) {
  find(id).tls = std::move(tls);
  // Bytes received with the end of the handshake cause no further event.
  if (find(id).tls->has_unread()) report_again(id);
}

Error TcpTransport::broken_by(const Stream& stream, int cause) const {
  if (stream.tls && stream.tls->openssl_error()) {
    return {ErrorKind::corrupted,
            fmt::format("the encrypted connection to {} was disturbed ({}): something between the "
                        "hosts changes bytes, by a fault or an attack",
                        stream.name, *stream.tls->openssl_error())};
  }
  const Duration limit = rails(stream.id.peer) > 1 ? Duration::zero() : dead_after_;
  return {ErrorKind::disconnected, describe_broken_connection(cause, stream.name, limit)};
}

Result<std::size_t> TcpTransport::write(StreamId id, std::span<const ConstBytes> pieces) {
  Stream& stream = find(id);
  if (stream.broken) return tl::unexpected<Error>(*stream.broken);
  if (stream.tls) return write_encrypted(stream, pieces);
  std::size_t taken = 0;
  while (!pieces.empty()) {
    Batch batch(pieces);
    const msghdr message = batch.header();
    const ssize_t count = ::sendmsg(stream.socket.descriptor(), &message, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && is_not_now(errno)) return taken;
    if (count < 0) {
      stream.broken = broken_by(stream, errno);
      if (taken > 0) return taken;
      return tl::unexpected<Error>(*stream.broken);
    }
    taken += static_cast<std::size_t>(count);
    stream.written += static_cast<std::size_t>(count);
    // The send buffer is full; an edge follows when it has room.
    if (static_cast<std::size_t>(count) < batch.bytes) return taken;
    pieces = pieces.subspan(batch.count);
  }
  return taken;
}

Result<std::size_t> TcpTransport::read(StreamId id, std::span<const Bytes> pieces) {
  Stream& stream = find(id);
  if (stream.closed) return tl::unexpected<Error>(*stream.broken);
  if (stream.tls) return read_encrypted(stream, pieces);
  std::size_t got = 0;
  while (!pieces.empty()) {
    Batch batch(pieces);
    pieces = pieces.subspan(batch.count);
    if (batch.bytes == 0) continue;
    msghdr message = batch.header();
    ssize_t count;
    do {
      count = ::recvmsg(stream.socket.descriptor(), &message, MSG_DONTWAIT);
    } while (count < 0 && errno == EINTR);
    if (count < 0 && is_not_now(errno)) return got;
    if (count <= 0) {
      // A failed write may have read the cause, which the kernel reports only once.
      if (!stream.broken) stream.broken = broken_by(stream, count == 0 ? 0 : errno);
      if (got == 0) return tl::unexpected<Error>(*stream.broken);
      report_again(id);
      return got;
    }
    got += static_cast<std::size_t>(count);
    if (static_cast<std::size_t>(count) < batch.bytes) {
      if (stream.ended.load(std::memory_order_acquire)) report_again(id);
      return got;
    }
  }
  return got;
}

Result<std::size_t> TcpTransport::write_encrypted(Stream& stream,
                                                  std::span<const ConstBytes> pieces) {
  const Transfer taken = stream.tls->write(pieces);
  stream.written += taken.bytes;
  if (taken.ended) stream.broken = broken_by(stream, taken.cause);
  if (taken.ended && taken.bytes == 0) return tl::unexpected<Error>(*stream.broken);
  return taken.bytes;
}

Result<std::size_t> TcpTransport::read_encrypted(Stream& stream, std::span<const Bytes> pieces) {
  const Transfer got = stream.tls->read(pieces);
  if (!got.ended) return got.bytes;
  if (!stream.broken) stream.broken = broken_by(stream, got.cause);
  if (got.bytes == 0) return tl::unexpected<Error>(*stream.broken);
  report_again(stream.id);
  return got.bytes;
}

std::size_t TcpTransport::abandon_write(StreamId id) {
  Stream& stream = find(id);
  const std::size_t bytes = stream.tls ? stream.tls->abandon_write() : 0;
  stream.written += bytes;
  return bytes;
}

bool TcpTransport::needs_checksums(StreamId id) const {
  return !streams_[index_of(id)].tls || rails(id.peer) > 1;
}

std::size_t TcpTransport::gso_burst_bytes(StreamId id) const {
  const Stream& stream = streams_[index_of(id)];
  if (stream.tls) return 1;
  int segment = 0;
  socklen_t size = sizeof segment;
  ::getsockopt(stream.socket.descriptor(), IPPROTO_TCP, TCP_MAXSEG, &segment, &size);
  if (segment <= 0) return 1;
  return static_cast<std::size_t>(std::max(kMaxBurst / segment, 1) * segment);
}

std::size_t TcpTransport::delivered(StreamId id) {
  Stream& stream = find(id);
  int unacknowledged = 0;
  if (::ioctl(stream.socket.descriptor(), SIOCOUTQ, &unacknowledged) != 0) {
    return stream.delivered;
  }
  if (stream.end_sent && unacknowledged > 0) --unacknowledged;  // The FIN counts as a byte.
  auto missing = static_cast<std::size_t>(unacknowledged);
  if (stream.tls) missing = stream.tls->undecryptable_without(missing);
  // The result must not decrease: a TLS record in flight may make earlier bytes uncertain.
  stream.delivered = std::max(stream.delivered, stream.written - std::min(stream.written, missing));
  return stream.delivered;
}

Duration TcpTransport::round_trip(StreamId id) const {
  return min_round_trip(streams_[index_of(id)].socket.descriptor());
}

void TcpTransport::close(StreamId id) {
  Stream& stream = find(id);
  if (stream.closed) return;
  if (!stream.broken) {
    stream.broken = Error{ErrorKind::aborted,
                          fmt::format("the connection to {} was closed on this side", stream.name)};
  }
  if (stream.tls) stream.tls->flush();
  stream.end_sent = ::shutdown(stream.socket.descriptor(), SHUT_WR) == 0;
  stream.closed = true;
}

std::string TcpTransport::describe(StreamId id) const {
  return streams_[index_of(id)].name;
}

void TcpTransport::expect(StreamId id, std::size_t bytes, double share) {
  Stream& stream = find(id);
  stream.window.set(stream.socket.descriptor(), share, clock_.now());
  int room = 0;
  socklen_t size = sizeof room;
  if (bytes > 1) {
    ::getsockopt(stream.socket.descriptor(), SOL_SOCKET, SO_RCVBUF, &room, &size);
    room = std::min(room, stream.window.size());
    bytes = std::min(bytes, static_cast<std::size_t>(room) / kBufferDivisor);
  }
  const int before = stream.low_water;
  const int mark = bytes < kMinExpected ? 1 : static_cast<int>(bytes);
  // A system call is not worth a small change.
  if (mark == before || (before > 1 && mark > before / 2 && mark < 2 * before)) return;
  if (::setsockopt(stream.socket.descriptor(), SOL_SOCKET, SO_RCVLOWAT, &mark, sizeof mark) != 0)
    return;
  stream.low_water = mark;
  expecting_streams_ += (mark > 1 ? 1 : 0) - (before > 1 ? 1 : 0);
}

void TcpTransport::poll(Duration timeout, std::vector<ReadyEvent>& events) {
  events.clear();
  if (take_repeats(events)) timeout = Duration::zero();
  const bool expecting = expecting_streams_ > 0;
  if (!was_expecting_.exchange(expecting) && expecting)
    expecting_until_ = clock_.now() + kMaxExpectDelay;
  if (expecting) timeout = std::min(timeout, kMaxExpectDelay);
  std::array<epoll_event, kEventsPerCall> ready;
  const int count = ::epoll_wait(epoll_.descriptor(), ready.data(), static_cast<int>(ready.size()),
                                 milliseconds_of(timeout));
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = ready[static_cast<std::size_t>(i)];
    if (event.data.u64 == kWakeup) {
      take_repeats(events);
    } else {
      add_event(streams_[event.data.u64], event.events, events);
    }
  }
  if (expecting) report_expecting(events);
}

/// Streams below SO_RCVLOWAT raise no event: reports them every kMaxExpectDelay.
void TcpTransport::report_expecting(std::vector<ReadyEvent>& events) {
  const Time now = clock_.now();
  if (now < expecting_until_.load()) return;
  expecting_until_ = now + kMaxExpectDelay;
  for (Stream& stream : streams_) {
    if (stream.low_water > 1) add_event(stream, EPOLLIN, events);
  }
}

void TcpTransport::add_event(Stream& stream, std::uint32_t happened,
                             std::vector<ReadyEvent>& events) {
  if (stream.closed) {
    discard_input(stream.socket.descriptor());
    return;
  }
  const bool ended = (happened & kEndEvents) != 0;
  if (ended) stream.ended.store(true, std::memory_order_release);
  events.push_back({.peer = stream.id.peer,
                    .readable = ended || (happened & EPOLLIN) != 0,
                    .writable = ended || (happened & EPOLLOUT) != 0,
                    .rail = stream.id.rail});
}

void TcpTransport::wake() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wakeup_.descriptor(), &one, sizeof one);
}

/// Reports a stream once more, because its end causes no new edge if it arrived before the last
/// bytes were read.
void TcpTransport::report_again(StreamId stream) {
  {
    const std::lock_guard lock(repeats_mutex_);
    repeats_.push_back(stream);
  }
  wake();
}

bool TcpTransport::take_repeats(std::vector<ReadyEvent>& events) {
  const std::lock_guard lock(repeats_mutex_);
  for (const StreamId stream : repeats_) {
    events.push_back({.peer = stream.peer, .readable = true, .rail = stream.rail});
  }
  const bool any = !repeats_.empty();
  repeats_.clear();
  return any;
}

}  // namespace gradwire::net
