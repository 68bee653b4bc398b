#pragma once

#include <cstddef>
#include <string>

namespace gradwire {

/// Returns `bytes` random bytes as 2 * bytes hexadecimal digits, from the operating system's
/// generator: fit for secrets. Throws Exception(system) if that fails.
std::string random_hex(std::size_t bytes);

}  // namespace gradwire
