#include "gradwire/net/tls_handshake.h"

#include <fmt/format.h>

#include "gradwire/net/poll_set.h"
#include "gradwire/net/socket.h"

namespace gradwire::net {
namespace {

Status handshake(TlsStream& stream, const std::string& name) {
  const Transfer went = stream.handshake();
  if (!went.ended) return {};
  if (!stream.openssl_error()) {
    return failure(ErrorKind::disconnected, describe_broken_connection(went.cause, name, {}));
  }
  return failure(ErrorKind::refused,
                 fmt::format("cannot encrypt the connection to {} ({}): a device between the hosts "
                             "changes bytes, or impersonates it",
                             name, *stream.openssl_error()));
}

}  // namespace

Result<std::vector<std::unique_ptr<TlsStream>>> handshake_all(
    const std::vector<TlsConnection>& connections, Deadline deadline) {
  std::vector<std::unique_ptr<TlsStream>> streams;
  for (const TlsConnection& each : connections) {
    streams.push_back(std::make_unique<TlsStream>(each.socket->descriptor(), each.end, each.key));
  }
  PollSet set;
  for (;;) {
    set.clear();
    const std::string* missing = nullptr;
    for (std::size_t i = 0; i < streams.size(); ++i) {
      if (streams[i]->handshake_done()) continue;
      GRADWIRE_RETURN_IF_ERROR(handshake(*streams[i], connections[i].name));
      if (streams[i]->handshake_done()) continue;
      set.add(*connections[i].socket, streams[i]->wanted_events());
      missing = &connections[i].name;
    }
    if (missing == nullptr) return streams;
    if (deadline.passed()) {
      return failure(ErrorKind::timeout,
                     fmt::format("{} did not complete the TLS handshake in time", *missing));
    }
    set.wait(deadline);
  }
}

}  // namespace gradwire::net
