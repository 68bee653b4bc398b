#include "gradwire/net/shm/ring_transport.h"

#include <algorithm>
#include <array>
#include <cstring>

#include <fmt/format.h>
#include <unistd.h>

#include "gradwire/base/check.h"

namespace gradwire::net {
namespace {

/// Bytes after which the writer publishes, so that the reader works while the writer still copies.
constexpr std::size_t kPublishBytes = 32 * 1024;

/// Polls that may skip the TCP connections: if the rings had events and, if TCP only reports the
/// end of neighbors, also if they had none.
constexpr unsigned kPollsWithoutTcp = 16;

}  // namespace

struct RingTransport::Link {
  Link(Neighbor neighbor, std::string peer_name)
      : peer(neighbor.rank),
        name(std::move(peer_name)),
        memory(std::move(neighbor.memory)),
        bell(std::move(neighbor.bell)),
        out(memory.outgoing()),
        in(memory.incoming()) {}

  /// Cheap, because waiting threads call it repeatedly.
  bool may_have_ended() const {
    return gone.load(std::memory_order_acquire) || in.ended() || in.corrupt();
  }

  Rank peer;
  std::string name;
  SharedPair memory;
  Socket bell;
  RingWriter out;
  RingReader in;
  std::atomic<bool> closed = false;      ///< On this end.
  std::atomic<bool> gone = false;        ///< Its TCP connection has ended.
  std::atomic<bool> end_unread = false;  ///< read() reached the end, but had bytes to return.

  // Guarded by scan_mutex_.
  std::uint64_t reported = 0;  ///< Incoming cursor that poll() has reported.
  bool end_reported = false;
};

RingTransport::RingTransport(std::unique_ptr<TcpTransport> tcp, std::vector<Neighbor> neighbors)
    : tcp_(std::move(tcp)), link_of_(static_cast<std::size_t>(tcp_->ranks())) {
  for (Neighbor& neighbor : neighbors) {
    const Rank rank = neighbor.rank;
    links_.push_back(
        std::make_unique<Link>(std::move(neighbor), tcp_->describe({.peer = rank, .rail = 0})));
    link_of_[static_cast<std::size_t>(rank)] = links_.back().get();
  }
  all_linked_ = links_.size() + 1 == link_of_.size();
}

RingTransport::~RingTransport() = default;

RingTransport::Link* RingTransport::find(StreamId stream) const {
  GRADWIRE_CHECK(stream.peer >= 0 && static_cast<std::size_t>(stream.peer) < link_of_.size());
  return link_of_[static_cast<std::size_t>(stream.peer)];
}

int RingTransport::rails(Rank peer) const {
  return find({.peer = peer, .rail = 0}) == nullptr ? tcp_->rails(peer) : 1;
}

/// Returns the reason for the end of the stream after its last byte; nullopt if it is open.
std::optional<Error> RingTransport::end_of(Link& link) {
  if (link.closed) {
    return Error{ErrorKind::aborted,
                 fmt::format("the connection to {} was closed by this rank", link.name)};
  }
  if (link.gone.exchange(false)) {
    std::byte none;
    const Bytes piece(&none, 1);
    const auto got = tcp_->read({link.peer, 0}, std::span(&piece, 1));
    if (!got) {
      link.gone = true;
      return got.error();
    }
  }
  if (!link.in.ended()) return std::nullopt;
  return Error{ErrorKind::disconnected, fmt::format("{} closed the connection", link.name)};
}

Result<std::size_t> RingTransport::write(StreamId stream, std::span<const ConstBytes> pieces) {
  Link* link = find(stream);
  if (link == nullptr) return tcp_->write(stream, pieces);
  if (link->closed || link->gone) {
    if (auto end = end_of(*link)) return tl::unexpected<Error>(std::move(*end));
  }
  std::size_t taken = 0;
  for (ConstBytes rest : pieces) {
    while (!rest.empty()) {
      const std::size_t size = link->out.copy_in(rest.first(std::min(rest.size(), kPublishBytes)));
      taken += size;
      rest = rest.subspan(size);
      if (link->out.out_of_memory()) {
        return failure(ErrorKind::system,
                       fmt::format("out of memory for the buffers shared with {}; free some, or "
                                   "set GRADWIRE_SHARED_MEMORY=0",
                                   link->name));
      }
      if (size == 0 && !link->out.block()) {
        wake_if_asleep(*link);
        return taken;
      }
      if (link->out.unpublished() < kPublishBytes) continue;
      link->out.publish();
      wake_if_asleep(*link);
    }
  }
  link->out.publish();
  wake_if_asleep(*link);
  return taken;
}

/// Called after a change for which a sleeping neighbor may wait.
void RingTransport::wake_if_asleep(Link& link) {
  // Either this rank sees the neighbor's flag, or the neighbor sees the change in its last check.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  std::atomic<std::uint32_t>& sleeps = link.memory.they_sleep();
  if (sleeps.load(std::memory_order_relaxed) == 0 || sleeps.exchange(0) == 0) return;
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t rung = ::write(link.bell.descriptor(), &one, sizeof one);
}

Result<ConstBytes> RingTransport::look(Link& link) {
  ConstBytes bytes = link.in.peek();
  if (!bytes.empty() && !link.closed) [[likely]]
    return bytes;
  if (link.in.corrupt()) {
    return failure(ErrorKind::corrupted,
                   fmt::format("the memory shared with {} is corrupted", link.name));
  }
  if (auto end = end_of(link)) {
    // Bytes written before the end may have arrived since the first peek.
    bytes = link.in.peek();
    if (bytes.empty() || link.closed) return tl::unexpected<Error>(std::move(*end));
  }
  return bytes;
}

Result<ConstBytes> RingTransport::peek(StreamId stream) {
  Link* link = find(stream);
  GRADWIRE_CHECK(link != nullptr);
  return look(*link);
}

void RingTransport::consume(StreamId stream, std::size_t bytes) {
  Link* link = find(stream);
  GRADWIRE_CHECK(link != nullptr);
  link->in.consume(bytes);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  const RingView in(link->memory.incoming());
  if (in.writer_blocked() && in.has_room_worth_waking()) wake_if_asleep(*link);
}

Result<std::size_t> RingTransport::read(StreamId stream, std::span<const Bytes> pieces) {
  Link* link = find(stream);
  if (link == nullptr) return tcp_->read(stream, pieces);
  std::size_t got = 0;
  bool all = true;
  for (const Bytes& piece : pieces) {
    if (piece.empty()) continue;
    const Result<ConstBytes> there = look(*link);
    if (!there && got == 0) return tl::unexpected<Error>(there.error());
    const std::size_t size = there ? std::min(there->size(), piece.size()) : 0;
    if (size > 0) std::memcpy(piece.data(), there->data(), size);
    consume(stream, size);
    got += size;
    all = size == piece.size();
    if (!all) break;
  }
  if (!all && got > 0 && (link->gone || link->in.ended())) report_end_again(*link);
  return got;
}

/// For an end that was reported together with the last bytes.
void RingTransport::report_end_again(Link& link) {
  link.end_unread = true;
  wake();
}

std::size_t RingTransport::delivered(StreamId stream) {
  const Link* link = find(stream);
  return link == nullptr ? tcp_->delivered(stream) : static_cast<std::size_t>(link->out.written());
}

Duration RingTransport::round_trip(StreamId stream) const {
  return find(stream) == nullptr ? tcp_->round_trip(stream) : Duration::zero();
}

void RingTransport::close(StreamId stream) {
  Link* link = find(stream);
  if (link != nullptr && !link->closed.exchange(true)) {
    link->out.end();
    wake_if_asleep(*link);
  }
  tcp_->close(stream);
}

void RingTransport::poll(Duration timeout, std::vector<ReadyEvent>& events) {
  events.clear();
  bool due = false;
  {
    const std::lock_guard lock(scan_mutex_);
    scan(events);
    due = tcp_is_due(!events.empty());
  }
  if (events.empty() && timeout > Duration::zero()) {
    poll_asleep(timeout, events);
  } else if (due) {
    poll_tcp(Duration::zero(), events);
  }
}

bool RingTransport::tcp_is_due(bool found) {
  return (!found && !all_linked_) || ++polls_ % kPollsWithoutTcp == 0;
}

void RingTransport::scan(std::vector<ReadyEvent>& events) {
  for (const auto& link : links_) {
    if (link->closed) continue;
    const RingView in(link->memory.incoming());
    RingView out(link->memory.outgoing());
    const std::uint64_t written = in.written();
    bool readable = written != link->reported && written != in.read();
    link->reported = written;
    if (in.ended() && !link->end_reported) readable = link->end_reported = true;
    if (link->end_unread.exchange(false)) readable = true;
    const bool writable = out.writer_blocked() && out.has_room_worth_waking();
    if (writable) out.unblock_writer();
    if (!readable && !writable) continue;
    events.push_back({.peer = link->peer, .readable = readable, .writable = writable});
  }
}

void RingTransport::set_asleep(bool asleep) {
  for (const auto& link : links_) {
    link->memory.we_sleep().store(asleep ? 1 : 0, std::memory_order_relaxed);
  }
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

void RingTransport::poll_tcp(Duration timeout, std::vector<ReadyEvent>& events) {
  std::vector<ReadyEvent> happened;
  tcp_->poll(timeout, happened);
  for (ReadyEvent& event : happened) {
    Link* link = find(event.stream());
    if (link == nullptr) {
      events.push_back(event);
    } else if (event.readable) {
      link->gone = true;
      events.push_back({.peer = event.peer, .readable = true, .writable = true});
    }
  }
}

void RingTransport::poll_asleep(Duration timeout, std::vector<ReadyEvent>& events) {
  {
    const std::lock_guard lock(scan_mutex_);
    ++sleepers_;
    set_asleep(true);
    scan(events);
  }
  if (events.empty()) poll_tcp(timeout, events);
  const std::lock_guard lock(scan_mutex_);
  // If another thread still sleeps, it needs another signal.
  set_asleep(--sleepers_ > 0);
  scan(events);
}

}  // namespace gradwire::net
