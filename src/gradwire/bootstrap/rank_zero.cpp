#include "gradwire/bootstrap/rank_zero.h"

#include <algorithm>
#include <utility>

#include "gradwire/base/log.h"

namespace gradwire::bootstrap {
namespace {

constexpr Duration kAttempt = std::chrono::seconds(5);
constexpr Duration kWarnAfter = std::chrono::seconds(8);
constexpr Duration kUntilNamesAppear = std::chrono::seconds(10);
constexpr Duration kUntilJobsEnd = std::chrono::seconds(2);

bool is_temporary(const Error& error) {
  return error.kind == ErrorKind::disconnected || error.kind == ErrorKind::timeout ||
         error.kind == ErrorKind::system;
}

}  // namespace

Result<RankZeroConnection> connect_once(const net::HostNetwork& network, const RankZero& to,
                                        net::Deadline deadline) {
  const auto addresses = net::resolve(to.host, to.port);
  if (!addresses) return tl::unexpected<Error>(addresses.error());
  Error last;
  for (const net::SocketAddress& address : *addresses) {
    Result<AuthenticatedSocket> made = connect_and_authenticate(
        network, address, to.shared, to.claims, deadline.or_after(kAttempt));
    if (made) return RankZeroConnection{std::move(*made), address};
    last = made.error();
    if (!is_temporary(last)) break;
  }
  return tl::unexpected<Error>(std::move(last));
}

bool Attempts::may_pass(const Error& error) const {
  const bool unknown_name = error.kind == ErrorKind::invalid_argument;
  if (error.kind == ErrorKind::refused) {
    return waited() < kUntilJobsEnd && deadline_.left() > pause_;
  }
  return is_temporary(error) || (unknown_name && waited() < kUntilNamesAppear);
}

Status Attempts::after(const Error& error) {
  if (!may_pass(error)) return tl::unexpected<Error>(error);
  if (!warned_ && waited() >= kWarnAfter && !deadline_.passed()) {
    warned_ = true;
    log_warning(
        "rank {} is still trying to reach rank 0 at {}:{} ({}); is rank 0 started, and can this "
        "host reach that address? `gradwire doctor --hosts ...` finds out why not",
        to_.claims.from, to_.host, to_.port, error.message);
  }
  network_.pause(std::min(pause_, deadline_.left()));
  pause_ = std::min<Duration>(pause_ * 2, std::chrono::milliseconds(200));
  return {};
}

double Attempts::seconds() const {
  return std::chrono::duration<double>(deadline_.at() - start_).count();
}

}  // namespace gradwire::bootstrap
