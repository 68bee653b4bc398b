#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gradwire/net/payload_checksum.h"
#include "gradwire/net/socket.h"
#include "gradwire/net/transport.h"

namespace gradwire::net {

/// The authenticated connections of one rank. sockets[p][i] leads to rank p over rail i and is
/// named names[p][i]. There are none to this rank itself.
struct Connections {
  Rank rank = 0;
  std::vector<std::vector<Socket>> sockets;
  std::vector<std::vector<std::string>> names;
  /// keys[p][i]: TLS key of sockets[p][i]; the higher rank is the client. Empty: no encryption.
  std::vector<std::vector<SessionKey>> keys = {};
  /// Used in messages only; tune_stream() sets it.
  Duration dead_after{};
};

/// Opens the streams to all peers: through shared memory to those `neighbors` for which it is
/// possible, over TCP to the others.
///
/// `neighbors` are the peers that may be on the same machine. They must be symmetric, and both
/// ends must call this, because they negotiate over their first connection. A false claim is
/// harmless: shared memory is used only if a descriptor could be passed, which requires that both
/// see the same abstract Unix sockets (one network namespace). rails() is then 1: the other
/// connections to that peer are closed, and the first one only reports the peer's end.
///
/// Connections with keys are encrypted, except those to ranks that share memory, which carry no
/// data.
///
/// The deadline's clock must outlive the transport.
///
/// Fails with disconnected (a peer is gone), timeout (it does not respond), refused (it has another
/// key) or system.
Result<std::unique_ptr<PollingTransport>> open_transport(Connections connections,
                                                         const std::vector<Rank>& neighbors,
                                                         Deadline deadline);

}  // namespace gradwire::net
