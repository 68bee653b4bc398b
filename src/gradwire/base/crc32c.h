#pragma once

#include <cstdint>

#include "gradwire/base/bytes.h"

namespace gradwire {

/// CRC-32C (Castagnoli, reflected polynomial 0x82F63B78; RFC 3720 appendix B.4). To continue over
/// more bytes, pass the value so far as `before`: crc32c(b, crc32c(a)) == crc32c(a followed by b).
/// 20 to 55 GB/s on processors with carry-less multiplication (ISA-L). Thread-safe.
std::uint32_t crc32c(ConstBytes bytes, std::uint32_t before = 0);

}  // namespace gradwire
