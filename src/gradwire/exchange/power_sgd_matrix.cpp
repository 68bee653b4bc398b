#include "gradwire/exchange/power_sgd_matrix.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "gradwire/base/random.h"
#include "gradwire/base/vectorized.h"

namespace gradwire::exchange {
namespace {

/// A column of P is linearly dependent if orthogonalization leaves at most this share of its
/// length.
constexpr float kDependent = 1e-6f;

/// Sums are kept in this many lanes on every processor.
constexpr std::size_t kLanes = 32;

/// Rows of M processed at a time.
constexpr std::size_t kRows = 4;

GRADWIRE_INLINE float sum_of(const std::array<float, kLanes>& lanes) {
  std::array<float, kLanes> sums = lanes;
  for (std::size_t half = kLanes / 2; half > 0; half /= 2) {
    for (std::size_t i = 0; i < half; ++i) sums[i] += sums[i + half];
  }
  return sums[0];
}

GRADWIRE_INLINE float dot(const float* a, const float* b, std::size_t n) {
  std::array<float, kLanes> lanes{};
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (std::size_t j = 0; j < kLanes; ++j) lanes[j] += a[i + j] * b[i + j];
  }
  for (; i < n; ++i) lanes[i % kLanes] += a[i] * b[i];
  return sum_of(lanes);
}

/// sum += factor a.
GRADWIRE_INLINE void add(float* __restrict sum, float factor, const float* __restrict a,
                         std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) sum[i] += factor * a[i];
}

/// sum += factors[0] a + factors[1] (a + n) + ...
GRADWIRE_INLINE void add_rows(float* __restrict sum, const float* __restrict factors,
                              const float* __restrict a, std::size_t n) {
  const float f0 = factors[0], f1 = factors[1], f2 = factors[2], f3 = factors[3];
  for (std::size_t i = 0; i < n; ++i) {
    sum[i] += (f0 * a[i] + f1 * a[n + i]) + (f2 * a[2 * n + i] + f3 * a[3 * n + i]);
  }
}

GRADWIRE_VECTORIZED void project_rows(const PowerSgdMatrix& m, const float* gradient, float* error,
                                      const float* q, float* p) {
  for (std::size_t row = 0; row < m.rows; ++row) {
    float* const at = error + row * m.columns;
    add(at, 1.0f, gradient + row * m.columns, m.columns);
    for (std::size_t k = 0; k < m.rank; ++k) {
      p[k * m.rows + row] = dot(at, q + k * m.columns, m.columns);
    }
  }
}

GRADWIRE_VECTORIZED void project_rows_back(const PowerSgdMatrix& m, const float* matrix,
                                           const float* p, float* q) {
  std::size_t row = 0;
  for (; row + kRows <= m.rows; row += kRows) {
    for (std::size_t k = 0; k < m.rank; ++k) {
      add_rows(q + k * m.columns, p + k * m.rows + row, matrix + row * m.columns, m.columns);
    }
  }
  for (; row < m.rows; ++row) {
    for (std::size_t k = 0; k < m.rank; ++k) {
      add(q + k * m.columns, p[k * m.rows + row], matrix + row * m.columns, m.columns);
    }
  }
}

/// Row `row` of P Q^T.
GRADWIRE_INLINE void product_row(const PowerSgdMatrix& m, std::size_t row, const float* p,
                                 const float* q, float* into) {
  const float first = p[row];
  for (std::size_t i = 0; i < m.columns; ++i) into[i] = first * q[i];
  for (std::size_t k = 1; k < m.rank; ++k) {
    add(into, p[k * m.rows + row], q + k * m.columns, m.columns);
  }
}

GRADWIRE_VECTORIZED void approximate_rows(const PowerSgdMatrix& m, const float* p, const float* q,
                                          float* gradient, float* error) {
  for (std::size_t row = 0; row < m.rows; ++row) {
    float* const product = gradient + row * m.columns;
    product_row(m, row, p, q, product);
    add(error + row * m.columns, -1.0f, product, m.columns);
  }
}

GRADWIRE_VECTORIZED float dot_of_columns(const float* a, const float* b, std::size_t n) {
  return dot(a, b, n);
}

bool all_finite(std::span<const float> values) {
  return std::ranges::all_of(values, [](float v) { return std::isfinite(v); });
}

/// error = error - gradient where that is finite, and zero elsewhere.
void take_back(std::span<const float> gradient, std::span<float> error) {
  for (std::size_t i = 0; i < error.size(); ++i) {
    const float before = error[i] - gradient[i];
    error[i] = std::isfinite(before) ? before : 0.0f;
  }
}

}  // namespace

void PowerSgdMatrix::revive(std::span<float> q, std::uint64_t seed) const {
  Random random(seed);
  for (std::size_t k = 0; k < rank; ++k) {
    const std::span<float> column = q.subspan(k * columns, columns);
    const bool zero = std::ranges::all_of(column, [](float v) { return v == 0.0f; });
    if (!zero && all_finite(column)) continue;
    for (float& value : column) value = static_cast<float>(2 * random.unit() - 1);
  }
}

void PowerSgdMatrix::project(std::span<const float> gradient, std::span<float> error,
                             std::span<const float> q, std::span<float> p) const {
  project_rows(*this, gradient.data(), error.data(), q.data(), p.data());
}

void PowerSgdMatrix::orthonormalize(std::span<float> p) const {
  for (std::size_t k = 0; k < rank; ++k) {
    float* const column = p.data() + k * rows;
    const float before = std::sqrt(dot_of_columns(column, column, rows));
    for (int pass = 0; pass < 2; ++pass) {
      for (std::size_t j = 0; j < k; ++j) {
        const float* const other = p.data() + j * rows;
        add(column, -dot_of_columns(column, other, rows), other, rows);
      }
    }
    const float length = std::sqrt(dot_of_columns(column, column, rows));
    const bool depends = length <= kDependent * before;  // False, if they are not finite.
    for (std::size_t i = 0; i < rows; ++i) column[i] = depends ? 0.0f : column[i] / length;
  }
}

void PowerSgdMatrix::project_back(std::span<const float> matrix, std::span<const float> p,
                                  std::span<float> q) const {
  std::ranges::fill(q, 0.0f);
  project_rows_back(*this, matrix.data(), p.data(), q.data());
}

void PowerSgdMatrix::approximate(std::span<const float> p, std::span<const float> q,
                                 std::span<float> gradient, std::span<float> error) const {
  const bool finite = all_finite(p) && all_finite(q);
  if (!finite) {
    take_back(gradient, error);
    std::ranges::fill(gradient, std::numeric_limits<float>::quiet_NaN());
    return;
  }
  approximate_rows(*this, p.data(), q.data(), gradient.data(), error.data());
}

}  // namespace gradwire::exchange
