#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "gradwire/base/fork.h"
#include "gradwire/net/receive_window.h"
#include "gradwire/net/socket.h"
#include "gradwire/net/tls_stream.h"
#include "gradwire/net/transport.h"

namespace gradwire {

/// Streams over TCP, one connection a peer and rail, on one epoll instance.
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

  /// `sockets[p][i]` is connected to rank p over rail i, non-blocking; there are none to this rank
  /// itself. `names[p][i]` is what describe({p, i}) says. `dead_after` is only named in messages:
  /// tune_stream sets it. `wakeup` is an eventfd(2): writing to it does what wake() does.
  /// Error: system.
  static Result<std::unique_ptr<TcpTransport>> create(std::vector<std::vector<Socket>> sockets,
                                                      std::vector<std::vector<std::string>> names,
                                                      Duration dead_after = {},
                                                      Socket wakeup = make_wakeup());
  static Socket make_wakeup();

  /// From now on a stream's bytes go through `tls`, which has greeted over its socket. Before any
  /// other use of the stream.
  void encrypt(StreamId stream, std::unique_ptr<TlsStream> tls);

  ~TcpTransport() override;
  TcpTransport(const TcpTransport&) = delete;
  TcpTransport& operator=(const TcpTransport&) = delete;

  int ranks() const { return static_cast<int>(first_.size()) - 1; }
  int rails(Rank peer) const override;
  Result<std::size_t> write(StreamId stream, std::span<const ConstBytes> pieces) override;
  Result<std::size_t> read(StreamId stream, std::span<const Bytes> pieces) override;
  /// Encrypted bytes cannot change unnoticed. But with several rails, checksums also tell whether
  /// what must be sent again is still what it was.
  bool needs_checksums(StreamId stream) const override;
  /// The whole segments that the kernel hands to a network card at once. One getsockopt.
  std::size_t train_bytes(StreamId stream) const override;
  /// What has been written and acknowledged. One ioctl.
  std::size_t delivered(StreamId stream) override;
  /// TCP_INFO's minimum. One getsockopt.
  Duration round_trip(StreamId stream) const override;
  /// By SO_RCVLOWAT, never more than the kernel would buffer with ease, and the window.
  void expect(StreamId stream, std::size_t bytes, double share) override;
  void close(StreamId stream) override;
  std::string describe(StreamId stream) const override;
  void poll(Duration timeout, std::vector<ReadyEvent>& events) override;
  void wake() override;

 private:
  struct Stream {
    StreamId id;
    Socket socket;
    std::string name;
    std::unique_ptr<TlsStream> tls;  ///< Null: bytes travel as they are.
    std::size_t written = 0;
    std::size_t delivered = 0;  ///< As delivered() has said.
    bool end_sent = false;
    std::optional<Error> broken;     ///< The first error; later calls repeat it.
    std::atomic<int> low_water = 1;  ///< As expect() has set it.
    ReceiveWindow window;
    std::atomic<bool> closed = false;  ///< By close(): poll() then throws away what arrives.
    std::atomic<bool> ended = false;   ///< poll() has seen the end of the stream, or an error.
  };

  TcpTransport(std::vector<std::vector<Socket>> sockets,
               std::vector<std::vector<std::string>> names, Duration dead_after, Socket wakeup);
  Status watch_all();
  std::size_t index_of(StreamId stream) const;
  Stream& find(StreamId stream) { return streams_[index_of(stream)]; }
  Error broken_by(const Stream& stream, int cause) const;
  Result<std::size_t> write_encrypted(Stream& stream, std::span<const ConstBytes> pieces);
  Result<std::size_t> read_encrypted(Stream& stream, std::span<const Bytes> pieces);
  void report_again(StreamId stream);
  bool take_repeats(std::vector<ReadyEvent>& events);
  void report_patient(std::vector<ReadyEvent>& events);
  void add_event(Stream& stream, std::uint32_t happened, std::vector<ReadyEvent>& events);

  std::vector<std::size_t> first_;  ///< The streams of peer p are first_[p] to first_[p + 1].
  std::vector<Stream> streams_;
  Duration dead_after_;
  Socket epoll_;
  Socket wakeup_;
  std::optional<CloseOnFork> close_on_fork_;
  std::atomic<int> patient_ = 0;  ///< Streams with a low water mark over 1.
  // Of whichever thread polled last: several may.
  std::atomic<bool> was_patient_ = false;
  std::atomic<Time> patient_until_{};  ///< When poll() reports them anyway.
  std::mutex repeats_mutex_;
  std::vector<StreamId> repeats_;
};

}  // namespace gradwire
