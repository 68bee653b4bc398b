#include "gradwire/bootstrap/store/store_client.h"

#include <utility>

#include <fmt/format.h>

namespace gradwire::bootstrap {
StoreClient::StoreClient(AuthenticatedConnection connection)
    : claims(connection.claims),
      from(net::peer_address(connection.socket)),
      stream(std::move(connection.socket), connection.key, MessageStream::End::server,
             kMaxStoreMessageBytes) {}

void StoreClient::respond(const StoreResponse& response) {
  pending.reset();
  if (!stream.send(encode(response))) gone = true;
}

std::string StoreClient::name() const {
  const std::string on = host.empty() ? "" : fmt::format("host {}, ", host);
  return fmt::format("rank {} ({}{})", claims.from, on, from.to_string());
}

}  // namespace gradwire::bootstrap
