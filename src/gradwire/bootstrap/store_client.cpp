#include "gradwire/bootstrap/store_client.h"

#include <utility>

#include <fmt/format.h>

namespace gradwire::bootstrap {
namespace {

/// A host that has lost power or its network closes no connection; keep-alive ends its connection
/// after this time without a response.
constexpr Duration kDeadAfter = std::chrono::seconds(5);

}  // namespace

StoreClient::StoreClient(AuthenticatedConnection connection)
    : socket(std::move(connection.socket)),
      claims(connection.claims),
      from(net::peer_address(socket)),
      theirs(connection.key, StoreCodes::Speaker::client),
      ours(connection.key, StoreCodes::Speaker::server) {
  net::keep_alive(socket, kDeadAfter);
}

StoreClient::Reading StoreClient::read_up_to(std::size_t size) {
  while (inbox.size() < size) {
    const std::size_t before = inbox.size();
    inbox.resize(size);
    const net::Transfer received =
        net::receive_some(socket, std::as_writable_bytes(std::span(inbox)).subspan(before));
    inbox.resize(before + received.bytes);
    if (received.ended) return Reading::gone;
    if (received.bytes == 0) return Reading::not_yet;
  }
  return Reading::complete;
}

bool StoreClient::flush() {
  while (!outbox.empty()) {
    const net::Transfer sent =
        net::send_some(socket, std::as_bytes(std::span(std::as_const(outbox))));
    if (sent.ended) return false;
    if (sent.bytes == 0) return true;
    outbox.erase(0, sent.bytes);
  }
  return true;
}

void StoreClient::respond(StoreAnswer answer, std::string_view value) {
  awaited.reset();
  completed = false;
  outbox += encode_response(answer, value, ours);
  flush();
}

std::string StoreClient::name() const {
  const std::string on = host.empty() ? "" : fmt::format("host {}, ", host);
  return fmt::format("rank {} ({}{})", claims.from, on, from.to_string());
}

}  // namespace gradwire::bootstrap
