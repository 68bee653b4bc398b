#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gradwire/base/error.h"
#include "gradwire/net/deadline.h"
#include "gradwire/net/tls_stream.h"

namespace gradwire::net {

/// A connection to be encrypted.
struct TlsConnection {
  const Socket* socket = nullptr;
  std::string name;  ///< Name of the peer, for messages.
  TlsStream::End end = TlsStream::End::client;
  SessionKey key = {};
};

/// Performs the TLS handshakes of all connections concurrently; the peers must do the same. Returns
/// the streams in the same order. Fails with refused (the peer has another key), disconnected or
/// timeout; each error names the peer.
Result<std::vector<std::unique_ptr<TlsStream>>> handshake_all(
    const std::vector<TlsConnection>& connections, Deadline deadline);

}  // namespace gradwire::net
