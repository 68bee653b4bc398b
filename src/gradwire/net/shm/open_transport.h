#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gradwire/net/session_key.h"
#include "gradwire/net/socket.h"
#include "gradwire/net/transport.h"

namespace gradwire {

/// The authenticated connections of one rank: sockets[p][i] leads to rank p over rail i and is
/// called names[p][i]. There are none to this rank itself.
struct Connections {
  Rank rank = 0;
  std::vector<std::vector<Socket>> sockets;
  std::vector<std::vector<std::string>> names;
  /// keys[p][i]: what sockets[p][i] is encrypted with; the rank that connected is the higher one.
  /// Empty: nothing is.
  std::vector<std::vector<SessionKey>> keys = {};
  /// Only named in messages: tune_stream sets it.
  Duration dead_after{};
};

/// The streams to all peers: through shared memory to those `neighbours` with which that works,
/// over TCP to the others.
///
/// `neighbours` are the peers that may be on the same machine; if one names the other, the other
/// must name it too, and both must call this, for they talk about it over their first connection.
/// A false claim does no harm: shared memory is used only if a descriptor could be handed over, for
/// which both must see the same abstract Unix sockets (one network namespace). Then rails() is 1:
/// their other connections are closed, and the first one only tells of the peer's end.
///
/// Connections with keys are encrypted, but for those to ranks that share memory, which carry
/// nothing.
///
/// Errors: disconnected (a peer has gone), timeout (it says nothing), refused (another key),
/// system.
Result<std::unique_ptr<PollingTransport>> open_transport(Connections connections,
                                                         const std::vector<Rank>& neighbours,
                                                         Deadline deadline);

}  // namespace gradwire
