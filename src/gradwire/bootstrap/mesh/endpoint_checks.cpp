#include "gradwire/bootstrap/mesh/endpoint_checks.h"

#include <algorithm>

#include <fmt/format.h>

#include "gradwire/base/log.h"

namespace gradwire::bootstrap {
namespace {

bool reach_each_other(const RankEndpoint& a, const RankEndpoint& b) {
  for (int i = 0; i < rails_between(a, b); ++i) {
    const net::SocketAddress& one = a.rails[static_cast<std::size_t>(i)].address;
    const net::SocketAddress& other = b.rails[static_cast<std::size_t>(i)].address;
    if (one.family() != other.family() || one.is_loopback() != other.is_loopback()) return false;
  }
  return true;
}

/// Ranks on loopback and ranks on other addresses, or on IPv4 and IPv6, cannot all be connected.
Status check_alike(const std::vector<RankEndpoint>& endpoints) {
  const RankEndpoint& first = endpoints.front();
  for (std::size_t i = 1; i < endpoints.size(); ++i) {
    if (reach_each_other(first, endpoints[i])) continue;
    return failure(
        ErrorKind::invalid_argument,
        fmt::format("{} and {} cannot reach each other: choose interfaces of one network "
                    "on all hosts (GRADWIRE_INTERFACE)",
                    first.describe(0), endpoints[i].describe(static_cast<Rank>(i))));
  }
  return {};
}

/// Reports the mismatch on every rank. The handshakes check it too, protected against modification.
Status check_encryption(const std::vector<RankEndpoint>& endpoints) {
  const auto other = std::ranges::find_if(endpoints, [&](const RankEndpoint& endpoint) {
    return endpoint.encrypts != endpoints.front().encrypts;
  });
  if (other == endpoints.end()) return {};
  const RankEndpoint& first = endpoints.front();
  const std::string other_name = other->describe(static_cast<Rank>(other - endpoints.begin()));
  return failure(ErrorKind::mismatch,
                 fmt::format("{} encrypts its traffic, {} does not: set GRADWIRE_ENCRYPTION to on, "
                             "or to off, for every rank",
                             first.encrypts ? first.describe(0) : other_name,
                             first.encrypts ? other_name : first.describe(0)));
}

/// Other ranks cannot use rails that one rank lacks, so it limits the speed of the job.
void warn_of_fewer_rails(const std::vector<RankEndpoint>& endpoints) {
  const auto count = [](const RankEndpoint& endpoint) { return endpoint.rails.size(); };
  const auto [fewest, most] = std::ranges::minmax_element(endpoints, {}, count);
  if (count(*fewest) == count(*most)) return;
  log_warning("{} has {} of the chosen network interfaces, {} has {}",
              fewest->describe(static_cast<Rank>(fewest - endpoints.begin())), count(*fewest),
              most->describe(static_cast<Rank>(most - endpoints.begin())), count(*most));
}

}  // namespace

Status check_endpoints(const std::vector<RankEndpoint>& endpoints, Rank rank) {
  GRADWIRE_RETURN_IF_ERROR(check_alike(endpoints));
  GRADWIRE_RETURN_IF_ERROR(check_encryption(endpoints));
  if (rank == 0) warn_of_fewer_rails(endpoints);
  return {};
}

}  // namespace gradwire::bootstrap
