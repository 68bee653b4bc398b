#pragma once

#include <chrono>
#include <optional>

#include "gradwire/base/types.h"
#include "gradwire/federated/secure/public_key.h"
#include "gradwire/federated/secure/secure_policy.h"
#include "gradwire/federated/selection.h"

namespace gradwire::federated {

/// Secure aggregation of the cohort's updates (MaskingClient).
struct SecureRound {
  SecurePolicy policy;
  SigningKeys signing_keys;  ///< With SecurePolicy::active; a simulation has its own.
  Digest task{};             ///< digest_of_task() of the round's plan.
  int threads = 1;           ///< They take off masks.
};

/// The numbers of a round (Bonawitz et al., "Towards Federated Learning at Scale", MLSys 2019,
/// sections 2.2 and 2.3).
struct RoundPolicy {
  int ask = 300;    ///< Clients that are asked to train; more than `use` (over-selection).
  int use = 256;    ///< The first that are ready are the cohort.
  int least = 200;  ///< With fewer updates a round is abandoned.
  /// Clients are drawn when as many have checked in (0: `ask`), or this time after the first.
  int pool = 0;
  Duration gather = std::chrono::seconds(10);
  Duration window = std::chrono::seconds(60);    ///< For training, from the draw.
  Duration exchange = std::chrono::seconds(60);  ///< For each later phase.
  Selection selection = Selection::uniform;
  int update_bits = 32;               ///< Bits of an element of an unweighted update.
  std::optional<SecureRound> secure;  ///< None: the server sees each update.
};

}  // namespace gradwire::federated
