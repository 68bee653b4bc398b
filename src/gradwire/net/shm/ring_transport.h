#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "gradwire/net/shm/neighbors.h"
#include "gradwire/net/tcp_transport.h"
#include "gradwire/net/transport.h"

namespace gradwire::net {

/// Transport with streams through shared memory to some peers, and over TCP to the others.
///
/// The hot path makes no system call: write() copies into a ring, peek() returns the contents of
/// one, and poll() checks all rings before it asks the kernel. A rank that is about to sleep sets a
/// flag in the shared memory and checks the rings once more. A peer that then writes to it, or
/// makes room for which it waits, sees the flag and signals its eventfd once. (Dekker's algorithm
/// guarantees that at least one of two sees the other.) The TCP connection to a neighbor carries no
/// data, but ends when its process does; bytes written before that can still be read.
class RingTransport final : public PollingTransport {
 public:
  /// `tcp` must have a connection to every neighbor, too, and is woken by the eventfd that they
  /// were given.
  RingTransport(std::unique_ptr<TcpTransport> tcp, std::vector<Neighbor> neighbors);
  ~RingTransport() override;
  RingTransport(const RingTransport&) = delete;
  RingTransport& operator=(const RingTransport&) = delete;

  int rails(Rank peer) const override;
  Result<std::size_t> write(StreamId stream, std::span<const ConstBytes> pieces) override;
  std::size_t abandon_write(StreamId stream) override {
    return find(stream) == nullptr ? tcp_->abandon_write(stream) : 0;
  }
  Result<std::size_t> read(StreamId stream, std::span<const Bytes> pieces) override;
  bool reads_in_place(StreamId stream) const override { return find(stream) != nullptr; }
  Result<ConstBytes> peek(StreamId stream) override;
  void consume(StreamId stream, std::size_t bytes) override;
  bool needs_checksums(StreamId stream) const override {
    return find(stream) == nullptr && tcp_->needs_checksums(stream);
  }
  std::size_t gso_burst_bytes(StreamId stream) const override {
    return find(stream) == nullptr ? tcp_->gso_burst_bytes(stream) : 1;
  }
  std::size_t delivered(StreamId stream) override;
  Duration round_trip(StreamId stream) const override;
  void close(StreamId stream) override;
  std::string describe(StreamId stream) const override { return tcp_->describe(stream); }
  void poll(Duration timeout, std::vector<ReadyEvent>& events) override;
  void wake() override { tcp_->wake(); }

 private:
  struct Link;

  Link* find(StreamId stream) const;
  Result<ConstBytes> look(Link& link);
  std::optional<Error> end_of(Link& link);
  void wake_if_asleep(Link& link);
  void report_end_again(Link& link);
  bool tcp_is_due(bool found);
  void scan(std::vector<ReadyEvent>& events);
  void set_asleep(bool asleep);
  void poll_tcp(Duration timeout, std::vector<ReadyEvent>& events);
  void poll_asleep(Duration timeout, std::vector<ReadyEvent>& events);

  std::unique_ptr<TcpTransport> tcp_;
  std::vector<std::unique_ptr<Link>> links_;
  std::vector<Link*> link_of_;  ///< By rank; null: over TCP.
  bool all_linked_ = false;     ///< Every peer is a neighbor.

  std::mutex scan_mutex_;  ///< Guards the state of poll().
  int sleepers_ = 0;       ///< Threads that sleep, or are about to.
  unsigned polls_ = 0;
};

}  // namespace gradwire::net
