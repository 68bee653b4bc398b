#include "gradwire/bootstrap/store/open_session.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "gradwire/base/log.h"
#include "gradwire/bootstrap/store/store_protocol.h"

namespace gradwire::bootstrap {
namespace {

/// Time for one address: longer than a server's timeout for unauthenticated peers, behind which
/// this client may queue.
constexpr Duration kAttempt = std::chrono::seconds(5);
constexpr Duration kWarnAfter = std::chrono::seconds(8);
constexpr Duration kUntilNamesAppear = std::chrono::seconds(10);
constexpr Duration kUntilJobsEnd = std::chrono::seconds(2);

bool is_temporary(const Error& error) {
  return error.kind == ErrorKind::disconnected || error.kind == ErrorKind::timeout ||
         error.kind == ErrorKind::system;
}

/// Tries the addresses of rank 0's host in order.
Result<StoreSession> connect_once(const net::HostNetwork& network, const Job& job,
                                  const Claims& claims, net::Deadline deadline) {
  const auto addresses = net::resolve(job.master_address, job.master_port);
  if (!addresses) return tl::unexpected<Error>(addresses.error());
  Error last;
  for (const net::SocketAddress& address : *addresses) {
    Result<AuthenticatedSocket> made =
        connect_and_authenticate(network, address, {.secret = job.secret, .purpose = kStorePurpose},
                                 claims, deadline.or_after(kAttempt));
    if (made) return StoreSession(network.clock(), std::move(*made), address);
    last = made.error();
    if (!is_temporary(last)) break;
  }
  return tl::unexpected<Error>(std::move(last));
}

}  // namespace

Claims claims_of(const Job& job) {
  return {.from = job.rank, .to = 0, .world_size = job.world_size};
}

Result<StoreSession> open_session(const net::HostNetwork& network, const Job& job,
                                  const Claims& claims, net::Deadline deadline) {
  Attempts attempts(network, job, deadline);
  Error last;
  for (;;) {
    Result<StoreSession> session = connect_once(network, job, claims, deadline);
    if (session) return session;
    const Error& error = session.error();
    GRADWIRE_RETURN_IF_ERROR(attempts.after(error));
    // If this client's deadline cut the last attempt short, its error says nothing about rank 0.
    const bool cut_short = error.kind == ErrorKind::timeout && deadline.passed();
    if (!cut_short || last.message.empty()) last = error;
    if (deadline.passed() && last.kind == ErrorKind::system) return tl::unexpected<Error>(last);
    if (deadline.passed()) {
      return failure(
          ErrorKind::timeout,
          fmt::format("rank 0 has not joined at {}:{} within {:.3g} s ({}); is it "
                      "started, and can this host reach that address?",
                      job.master_address, job.master_port, attempts.seconds(), last.message));
    }
  }
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
        job_.rank, job_.master_address, job_.master_port, error.message);
  }
  network_.pause(std::min(pause_, deadline_.left()));
  pause_ = std::min<Duration>(pause_ * 2, std::chrono::milliseconds(200));
  return {};
}

double Attempts::seconds() const {
  return std::chrono::duration<double>(deadline_.at() - start_).count();
}

}  // namespace gradwire::bootstrap
