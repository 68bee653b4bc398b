#pragma once

#include <string>
#include <vector>

#include "gradwire/net/deadline.h"
#include "gradwire/net/transport.h"

namespace gradwire::cli {

/// Blocking messages of known size over the streams of a transport. For measurements and their
/// coordination, not for bulk traffic. Single-threaded.
class Wire {
 public:
  /// `patience`: timeout without progress after which a peer counts as lost.
  Wire(net::PollingTransport& transport, const Clock& clock,
       Duration patience = std::chrono::seconds(10))
      : transport_(transport), clock_(clock), patience_(patience) {}

  /// Fails with disconnected, or with timeout if the peer makes no progress.
  Status send(net::StreamId stream, ConstBytes bytes);
  Status receive(net::StreamId stream, Bytes bytes);

  /// Receives as receive() does, but busy-polls for a short time before it sleeps, for answers that
  /// arrive at once. The executor waits the same way, so that measured latencies are those of
  /// operations.
  Status receive_soon(net::StreamId stream, Bytes bytes);

  /// Send and receive a text of up to 16 MiB. Also fail with corrupted if it is longer.
  Status send_text(net::StreamId stream, const std::string& text);
  Result<std::string> receive_text(net::StreamId stream);

  /// Reads available bytes of a stream, at most bytes.size(); does not wait. Returns their number.
  Result<std::size_t> read_some(net::StreamId stream, Bytes bytes);

  /// Waits for an event of the transport; returns false after the patience. Retry the operation
  /// after it.
  bool wait();

  net::PollingTransport& transport() { return transport_; }
  const Clock& clock() const { return clock_; }

 private:
  Status receive_with(net::StreamId stream, Bytes bytes, Duration spin);
  tl::unexpected<Error> silent(net::StreamId stream, const char* did) const;

  net::PollingTransport& transport_;
  const Clock& clock_;
  Duration patience_;
  std::vector<net::ReadyEvent> events_;
};

/// All-gather of texts: each rank passes its own and gets those of all, by rank. Also a barrier.
/// Goes through rank 0, on rail 0.
Result<std::vector<std::string>> share(Wire& wire, Rank rank, int ranks, const std::string& mine);

}  // namespace gradwire::cli
