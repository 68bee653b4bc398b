#pragma once

#include <cstddef>
#include <cstdint>

#include "gradwire/base/vectorized.h"

/// Packs codes of a few bits into bytes. Byte j has the codes of values j, j + rows, j + 2 rows,
/// ..., the first in its lowest bits, where `rows` is the number of bytes. So values that are
/// adjacent in memory are adjacent in vector registers.
namespace gradwire::codec {

/// Bytes of n codes, `per_byte` codes per byte.
constexpr std::size_t packed_bytes(std::size_t n, std::size_t per_byte) {
  return (n + per_byte - 1) / per_byte;
}

/// Packs code(i), of kBits bits, for i < n, rounded up to fill all bytes. kBits: 1, 2, 4, 8.
template <unsigned kBits, class Code>
GRADWIRE_INLINE void pack(std::size_t n, Code code, std::byte* __restrict packed) {
  constexpr unsigned kPerByte = 8 / kBits;
  const std::size_t rows = packed_bytes(n, kPerByte);
  for (std::size_t j = 0; j < rows; ++j) {
    std::uint32_t byte = 0;
#pragma GCC unroll 8
    for (unsigned k = 0; k < kPerByte; ++k) byte |= code(j + k * rows) << (k * kBits);
    packed[j] = static_cast<std::byte>(byte);
  }
}

/// y[i] = value(code of i), for i < n, rounded up to the codes of all bytes.
template <unsigned kBits, class Value>
GRADWIRE_INLINE void unpack(const std::byte* __restrict packed, std::size_t n, Value value,
                            float* __restrict y) {
  constexpr unsigned kPerByte = 8 / kBits;
  constexpr std::uint32_t kMask = (1u << kBits) - 1;
  const std::size_t rows = packed_bytes(n, kPerByte);
#pragma GCC unroll 8
  for (unsigned k = 0; k < kPerByte; ++k) {
    for (std::size_t j = 0; j < rows; ++j) {
      y[j + k * rows] = value((static_cast<std::uint32_t>(packed[j]) >> (k * kBits)) & kMask);
    }
  }
}

}  // namespace gradwire::codec
