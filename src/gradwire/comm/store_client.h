#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "gradwire/comm/store_protocol.h"
#include "gradwire/net/deadline.h"
#include "gradwire/net/gate.h"

namespace gradwire {

/// A process that is connected to the rendezvous store, as its server sees it. It sends one request
/// at a time, so that what is buffered for it is bounded by the largest request or response.
struct StoreClient {
  enum class Reading { complete, not_yet, gone };

  explicit StoreClient(Admitted admitted);

  /// Fills `inbox` up to `size` bytes.
  Reading read_up_to(std::size_t size);

  /// Sends what it can of `outbox`. False if the client has gone.
  bool flush();

  /// Ends its wait. What cannot be sent now stays in `outbox`; that a client has gone, flush()
  /// finds the next time.
  void respond(StoreAnswer answer, std::string_view value = {});

  /// Whether it waits for an answer.
  bool waits() const { return awaited || completed; }

  /// "rank 3 (host b, 10.77.0.4:41234)".
  std::string name() const;

  Socket socket;
  Claims claims;
  SocketAddress from;
  std::string host;
  bool joined = false;     ///< It is the rank that it claims to be.
  bool told = false;       ///< That the start has failed: what it still sends is of no interest.
  bool completed = false;  ///< It waits for the others.
  bool gone = false;
  StoreCodes theirs, ours;
  std::string inbox;
  std::string outbox;
  std::optional<RequestHeader> header;  ///< Of the request whose body is still coming.
  std::optional<std::string> awaited;   ///< The key of a get that waits.
  Deadline waits_until = Deadline(Time::max());
  std::set<std::string> keys;  ///< That it has set.
  std::size_t place = 0;       ///< In the PollSet of the round.
};

}  // namespace gradwire
