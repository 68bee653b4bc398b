#pragma once

#include <vector>

#include "gradwire/base/error.h"
#include "gradwire/bootstrap/mesh/rank_endpoint.h"

namespace gradwire::bootstrap {

/// Checks that all ranks can be connected: with addresses of one kind, and with the same
/// encryption. Every rank fails alike, with invalid_argument or mismatch, which name two ranks.
/// Rank 0 warns if some ranks have fewer rails.
Status check_endpoints(const std::vector<RankEndpoint>& endpoints, Rank rank);

}  // namespace gradwire::bootstrap
