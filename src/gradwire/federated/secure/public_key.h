#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <optional>

#include "gradwire/federated/client_id.h"

namespace gradwire::federated {

/// A public key of X25519 or Ed25519.
using PublicKey = std::array<std::byte, 32>;

/// A hash by SHA-256.
using Digest = std::array<std::byte, 32>;

/// Returns the enrolled key, of Ed25519, with which a client signs; nothing for strangers.
using SigningKeys = std::function<std::optional<PublicKey>(ClientId)>;

}  // namespace gradwire::federated
