#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace gradwire::exchange {

/// The steps of PowerSGD for one matrix M, the gradient plus the error-feedback residual (Vogels,
/// Karimireddy, Jaggi, "PowerSGD: Practical low-rank gradient compression for distributed
/// optimization", NeurIPS 2019, algorithm 1). M ~ P Q^T, with `rank` columns each. Columns of P and
/// Q are contiguous: p has rank x rows values, q rank x columns. Results are the same on all
/// processors (-ffp-contract=off; sums in a fixed order).
struct PowerSgdMatrix {
  std::size_t rows = 0;
  std::size_t columns = 0;
  std::size_t rank = 0;  ///< At most rows and columns.

  std::size_t size() const { return rows * columns; }
  std::size_t p_size() const { return rank * rows; }
  std::size_t q_size() const { return rank * columns; }

  /// Redraws the columns of Q that are zero or not finite, which would otherwise stay so. Values
  /// are uniform in -1 .. 1.
  void revive(std::span<float> q, std::uint64_t seed) const;

  /// error = M = gradient + error; p = M q.
  void project(std::span<const float> gradient, std::span<float> error, std::span<const float> q,
               std::span<float> p) const;

  /// Makes the columns of P orthonormal (Gram-Schmidt, twice); a column that depends on the others
  /// becomes zero.
  void orthonormalize(std::span<float> p) const;

  /// q = M^T p.
  void project_back(std::span<const float> matrix, std::span<const float> p,
                    std::span<float> q) const;

  /// gradient = p q^T; error -= gradient. Where the result is not finite, error is restored to its
  /// value before this step, if that was finite.
  void approximate(std::span<const float> p, std::span<const float> q, std::span<float> gradient,
                   std::span<float> error) const;
};

}  // namespace gradwire::exchange
