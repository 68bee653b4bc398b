#pragma once

#include <cstddef>
#include <cstdint>

namespace gradwire {

/// The greatest block that transform() takes.
inline constexpr std::size_t kMaxTransform = 1024;

/// Multiplies n values, a power of two from 16 to kMaxTransform, with the Walsh-Hadamard matrix of
/// +1 and -1 (natural order), in place, in n log2 n additions. Twice is times n. `x` is aligned to
/// 64 bytes.
void hadamard_transform(float* x, std::size_t n);

/// y[i] = factor * x[i], or minus that with a probability of one half, by the seed; what is finite
/// stays finite. Up to a multiple of 32 values are read and written. n <= kMaxTransform.
void scale_and_flip(const float* x, std::size_t n, float factor, std::uint64_t seed, float* y);

}  // namespace gradwire
