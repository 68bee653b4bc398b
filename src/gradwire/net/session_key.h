#pragma once

#include <array>
#include <cstddef>
#include <string_view>

#include "gradwire/base/bytes.h"

namespace gradwire {

/// What the two ends of one connection know and nobody else.
using SessionKey = std::array<std::byte, 32>;

/// HKDF-SHA256 (RFC 5869) of the job's secret, salted with `transcript`, the messages that opened
/// the connection: so it is another one for each connection, and the same at both ends only if both
/// saw the same messages.
SessionKey derive_session_key(std::string_view secret, ConstBytes transcript);

}  // namespace gradwire
