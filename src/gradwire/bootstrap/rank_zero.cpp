#include "gradwire/bootstrap/rank_zero.h"

#include <algorithm>
#include <utility>

namespace gradwire::bootstrap {
namespace {

constexpr Duration kAttempt = std::chrono::seconds(5);

}  // namespace

Result<RankZeroConnection> connect_once(const net::HostNetwork& network, const RankZero& to,
                                        net::Deadline deadline) {
  const auto addresses = net::resolve(to.host, to.port);
  if (!addresses) return failure(ErrorKind::timeout, addresses.error().message);
  Error last;
  for (const net::SocketAddress& address : *addresses) {
    Result<AuthenticatedSocket> made = connect_and_authenticate(
        network, address, to.shared, to.claims, deadline.or_after(kAttempt));
    if (made) return RankZeroConnection{std::move(*made), address};
    last = made.error();
    if (!may_pass(last)) break;
  }
  return tl::unexpected<Error>(std::move(last));
}

bool may_pass(const Error& error) {
  return error.kind == ErrorKind::disconnected || error.kind == ErrorKind::timeout ||
         error.kind == ErrorKind::system;
}

void Backoff::pause(const net::HostNetwork& network, net::Deadline deadline) {
  network.pause(std::min(pause_, deadline.left()));
  pause_ = std::min<Duration>(pause_ * 2, std::chrono::milliseconds(200));
}

}  // namespace gradwire::bootstrap
