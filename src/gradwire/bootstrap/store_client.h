#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "gradwire/bootstrap/handshake_server.h"
#include "gradwire/bootstrap/store_protocol.h"

namespace gradwire::bootstrap {

/// A client of the rendezvous store, as the server sees it. It sends one request at a time, so its
/// buffers are bounded by the largest request or response.
struct StoreClient {
  enum class Reading { complete, not_yet, gone };

  explicit StoreClient(AuthenticatedConnection connection);

  /// Fills `inbox` up to `size` bytes.
  Reading read_up_to(std::size_t size);

  /// Sends as much of `outbox` as possible. Returns false if the client is gone.
  bool flush();

  /// Sends a response and ends the client's wait. Unsent bytes stay in `outbox`; the next flush()
  /// detects that the client is gone.
  void respond(StoreAnswer answer, std::string_view value = {});

  /// Returns true if a request of the client is pending.
  bool waits() const { return awaited || completed; }

  /// "rank 3 (host b, 10.77.0.4:41234)".
  std::string name() const;

  net::Socket socket;
  Claims claims;
  net::SocketAddress from;
  std::string host;
  bool joined = false;     ///< Accepted as the rank that it claims to be.
  bool notified = false;   ///< Told that the start has failed; its further requests are ignored.
  bool completed = false;  ///< Connected to all ranks and waiting for the others.
  bool gone = false;
  StoreCodes theirs, ours;
  std::string inbox;
  std::string outbox;
  std::optional<RequestHeader> header;  ///< Header of the request whose body is incomplete.
  std::optional<std::string> awaited;   ///< Key of a pending get.
  Time waits_until = Time::max();
  std::set<std::string> keys;  ///< Keys that it has set.
  std::size_t poll_index = 0;  ///< Index in the current PollSet.
};

}  // namespace gradwire::bootstrap
