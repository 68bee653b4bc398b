#pragma once

#include <cstdint>
#include <string_view>

namespace gradwire::federated {

/// The treatment of local work that is not complete when the window ends.
enum class Partial : std::uint8_t {
  count,      ///< The update counts in full (Li et al., MLSys 2020, section 3.2).
  drop,       ///< The client is dropped.
  normalize,  ///< The update is divided by the steps it took, and the mean multiplied by the mean
              ///< number of steps (FedNova: Wang et al., "Tackling the Objective Inconsistency
              ///< Problem", NeurIPS 2020).
};
/// "count", "drop", "normalize".
std::string_view name_of(Partial partial);
/// Inverse of name_of(). Throws Exception(invalid_argument).
Partial partial_named(std::string_view name);

}  // namespace gradwire::federated
