#pragma once

#include <array>
#include <cstddef>
#include <string_view>

#include "gradwire/base/bytes.h"

namespace gradwire {

/// Key known only to the two ends of one connection.
using SessionKey = std::array<std::byte, 32>;

/// HKDF-SHA256 (RFC 5869) of the job's secret, salted with `transcript`, the messages of the
/// handshake. The key differs for each connection, and is the same at both ends only if both saw
/// the same messages.
SessionKey derive_session_key(std::string_view secret, ConstBytes transcript);

}  // namespace gradwire
