#pragma once

#include <cstddef>
#include <cstdint>

namespace gradwire::codec {

/// Maximum block size of hadamard_transform().
inline constexpr std::size_t kMaxTransform = 1024;

/// Multiplies n values by the Walsh-Hadamard matrix of +1 and -1 (natural order), in place, in n
/// log2 n additions. n is a power of two from 16 to kMaxTransform. Applying it twice multiplies by
/// n. `x` is aligned to 64 bytes.
void hadamard_transform(float* x, std::size_t n);

/// y[i] = factor * x[i], negated with probability 1/2, as the seed decides. Finite values stay
/// finite. Reads and writes n values, rounded up to a multiple of 32. n <= kMaxTransform.
void scale_and_flip(const float* x, std::size_t n, float factor, std::uint64_t seed, float* y);

}  // namespace gradwire::codec
