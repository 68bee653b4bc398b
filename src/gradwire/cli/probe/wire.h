#pragma once

#include <string>
#include <vector>

#include "gradwire/net/deadline.h"
#include "gradwire/net/transport.h"

namespace gradwire {

/// Messages of known size, one after the other, over the streams of a transport: waits where the
/// transport would not. For measurements and their coordination, not for traffic. One thread.
class Wire {
 public:
  /// `patience`: how long nothing may move before a peer counts as lost.
  explicit Wire(PollingTransport& transport, Duration patience = std::chrono::seconds(10))
      : transport_(transport), patience_(patience) {}

  /// Errors: disconnected; timeout, when the peer takes or sends nothing for too long.
  Status send(StreamId stream, ConstBytes bytes);
  Status receive(StreamId stream, Bytes bytes);

  /// The same, looking again and again for a short while before it sleeps: for the answer that
  /// comes at once. As the executor waits too, latencies are those that operations see.
  Status receive_soon(StreamId stream, Bytes bytes);

  /// A text of any length up to 16 MiB. Error: also corrupted, for a longer one.
  Status send_text(StreamId stream, const std::string& text);
  Result<std::string> receive_text(StreamId stream);

  /// What has come on a stream, at most as much as fits; does not wait.
  Result<std::size_t> read_some(StreamId stream, Bytes bytes);

  /// Waits until something may have moved; false after the patience. Retry after it.
  bool wait();

  PollingTransport& transport() { return transport_; }

 private:
  Status receive_with(StreamId stream, Bytes bytes, Duration spin);
  tl::unexpected<Error> silent(StreamId stream, const char* did) const;

  PollingTransport& transport_;
  Duration patience_;
  std::vector<ReadyEvent> events_;
};

/// What every rank has to say, by rank: each hands in its own text and gets all. Also a barrier.
/// Goes through rank 0, on rail 0.
Result<std::vector<std::string>> share(Wire& wire, Rank rank, int ranks, const std::string& mine);

}  // namespace gradwire
