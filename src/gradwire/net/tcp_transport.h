#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "gradwire/net/socket.h"
#include "gradwire/net/transport.h"

namespace gradwire {

/// Streams over TCP, one connection a peer, on one epoll instance.
///
/// Each socket is registered once, edge-triggered, for everything, so that the hot path makes no
/// call but sendmsg, recvmsg and epoll_wait. A short read means "none now" without asking the
/// kernel again: more bytes make a new edge. What would make none, an end of stream that was
/// already there when the last bytes were read, is remembered from the event and reported once
/// more.
///
/// close() ends our half of the stream; the descriptor lives until the destructor. That waits, at
/// most kLinger, until the peers' kernels have acknowledged what was written, and throws away what
/// still arrives: closing a descriptor with unread bytes would make the kernel send a reset, which
/// destroys bytes still under way, perhaps the frame that says why we leave.
class TcpTransport final : public PollingTransport {
 public:
  static constexpr Duration kLinger = std::chrono::seconds(1);

  /// `sockets[p]` is connected to rank p, non-blocking; this rank's own is not valid. `names[p]` is
  /// what describe(p) says. `dead_after` is only named in messages: tune_stream sets it.
  /// Error: system.
  static Result<std::unique_ptr<TcpTransport>> create(std::vector<Socket> sockets,
                                                      std::vector<std::string> names,
                                                      Duration dead_after = {});
  ~TcpTransport() override;
  TcpTransport(const TcpTransport&) = delete;
  TcpTransport& operator=(const TcpTransport&) = delete;

  Result<std::size_t> write(Rank peer, std::span<const ConstBytes> pieces) override;
  Result<std::size_t> read(Rank peer, std::span<const Bytes> pieces) override;
  void close(Rank peer) override;
  std::string describe(Rank peer) const override;
  void poll(Duration timeout, std::vector<ReadyEvent>& events) override;
  void wake() override;

 private:
  struct Peer {
    Socket socket;
    std::string name;
    std::optional<Error> broken;       ///< The first error; later calls repeat it.
    std::atomic<bool> closed = false;  ///< By close(): poll() then throws away what arrives.
    std::atomic<bool> ended = false;   ///< poll() has seen the end of the stream, or an error.
  };

  TcpTransport(std::vector<Socket> sockets, std::vector<std::string> names, Duration dead_after);
  Status watch_all();
  Peer& peer_of(Rank rank);
  Error broken_by(const Peer& peer, int cause) const;
  void report_again(Rank rank);
  bool take_repeats(std::vector<ReadyEvent>& events);
  void add_event(Rank rank, std::uint32_t happened, std::vector<ReadyEvent>& events);

  std::vector<Peer> peers_;
  Duration dead_after_;
  Socket epoll_;
  Socket wakeup_;
  std::mutex repeats_mutex_;
  std::vector<Rank> repeats_;
};

}  // namespace gradwire
