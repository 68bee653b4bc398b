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

namespace gradwire::net {

/// Streams over TCP, one connection per peer and rail, on one epoll instance.
///
/// Each socket is registered once, edge-triggered, for all events, so that the only system calls of
/// the hot path are sendmsg, recvmsg and epoll_wait. After a short read no further read is needed,
/// because more bytes cause a new edge. An end of stream that arrived before the last bytes were
/// read causes no new edge, so it is recorded from its event and reported again.
///
/// close() shuts down the sending half of the stream; the descriptor stays open until the
/// destructor. The destructor waits, at most kLinger, for the peers' kernels to acknowledge all
/// written bytes, and discards bytes that arrive meanwhile. Closing a descriptor with unread bytes
/// would send a reset, which destroys bytes in flight, such as an abort frame with the cause.
class TcpTransport final : public PollingTransport {
 public:
  static constexpr Duration kLinger = std::chrono::seconds(1);

  /// `sockets[p][i]` is non-blocking and connected to rank p over rail i; the entry of this rank is
  /// empty. `names[p][i]` is the result of describe({p, i}). `dead_after` is used only in messages:
  /// tune_stream sets the timeout. `wakeup` is an eventfd(2): writing to it has the effect of
  /// wake(). Fails with system.
  /// `clock` must outlive the transport.
  static Result<std::unique_ptr<TcpTransport>> create(const Clock& clock,
                                                      std::vector<std::vector<Socket>> sockets,
                                                      std::vector<std::vector<std::string>> names,
                                                      Duration dead_after = {},
                                                      Socket wakeup = make_wakeup());
  static Socket make_wakeup();

  /// Encrypts a stream with `tls`, whose handshake over the stream's socket is complete. Called
  /// before any other use of the stream.
  void encrypt(StreamId stream, std::unique_ptr<TlsStream> tls);

  ~TcpTransport() override;
  TcpTransport(const TcpTransport&) = delete;
  TcpTransport& operator=(const TcpTransport&) = delete;

  int ranks() const { return static_cast<int>(first_.size()) - 1; }
  int rails(Rank peer) const override;
  Result<std::size_t> write(StreamId stream, std::span<const ConstBytes> pieces) override;
  Result<std::size_t> read(StreamId stream, std::span<const Bytes> pieces) override;
  /// False for an encrypted stream, because TLS detects changes. But with several rails, checksums
  /// also detect changed memory before a retransmission.
  std::size_t abandon_write(StreamId stream) override;
  bool needs_checksums(StreamId stream) const override;
  /// The size of a GSO burst in whole segments. One getsockopt.
  std::size_t gso_burst_bytes(StreamId stream) const override;
  /// Written and acknowledged bytes. One ioctl.
  std::size_t delivered(StreamId stream) override;
  /// The minimum of TCP_INFO. One getsockopt.
  Duration round_trip(StreamId stream) const override;
  /// Sets SO_RCVLOWAT, to at most a fraction of the receive buffer, and the receive window.
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
    std::unique_ptr<TlsStream> tls;  ///< Null: not encrypted.
    std::size_t written = 0;
    std::size_t delivered = 0;  ///< Last result of delivered().
    bool end_sent = false;
    std::optional<Error> broken;     ///< The first error; later calls return it.
    std::atomic<int> low_water = 1;  ///< SO_RCVLOWAT, set by expect().
    ReceiveWindow window;
    std::atomic<bool> closed = false;  ///< Set by close(): poll() then discards received bytes.
    std::atomic<bool> ended = false;   ///< poll() has seen the end of the stream, or an error.
  };

  TcpTransport(const Clock& clock, std::vector<std::vector<Socket>> sockets,
               std::vector<std::vector<std::string>> names, Duration dead_after, Socket wakeup);
  Status watch_all();
  std::size_t index_of(StreamId stream) const;
  Stream& find(StreamId stream) { return streams_[index_of(stream)]; }
  Error broken_by(const Stream& stream, int cause) const;
  Result<std::size_t> write_encrypted(Stream& stream, std::span<const ConstBytes> pieces);
  Result<std::size_t> read_encrypted(Stream& stream, std::span<const Bytes> pieces);
  void report_again(StreamId stream);
  bool take_repeats(std::vector<ReadyEvent>& events);
  void report_expecting(std::vector<ReadyEvent>& events);
  void add_event(Stream& stream, std::uint32_t happened, std::vector<ReadyEvent>& events);

  const Clock& clock_;
  std::vector<std::size_t> first_;  ///< The streams of peer p are first_[p] to first_[p + 1].
  std::vector<Stream> streams_;
  Duration dead_after_;
  Socket epoll_;
  Socket wakeup_;
  std::optional<CloseOnFork> close_on_fork_;
  std::atomic<int> expecting_streams_ = 0;  ///< Streams with SO_RCVLOWAT above 1.
  // Set by the last thread that called poll(); several threads may.
  std::atomic<bool> was_expecting_ = false;
  std::atomic<Time> expecting_until_{};  ///< Time at which poll() reports them anyway.
  std::mutex repeats_mutex_;
  std::vector<StreamId> repeats_;
};

}  // namespace gradwire::net
