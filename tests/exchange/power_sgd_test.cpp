#include <cmath>
#include <numeric>

#include <gtest/gtest.h>

#include "gradwire/exchange/power_sgd_matrix.h"
#include "tests/support/exchanging.h"

namespace gradwire::test {
namespace {

double dot(std::span<const float> a, std::span<const float> b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

/// The sum of `rank` products of random columns.
std::vector<float> low_rank_matrix(std::size_t rows, std::size_t columns, std::size_t rank,
                                   std::uint64_t seed) {
  std::vector<float> matrix(rows * columns);
  for (std::size_t k = 0; k < rank; ++k) {
    const auto left = draw_gradient(rows, seed + 2 * k);
    const auto right = draw_gradient(columns, seed + 2 * k + 1);
    for (std::size_t i = 0; i < matrix.size(); ++i) {
      matrix[i] += left[i / columns] * right[i % columns];
    }
  }
  return matrix;
}

TEST(PowerSgdMatrix, ProductsAreThoseOfTheDefinition) {
  const exchange::PowerSgdMatrix m{.rows = 37, .columns = 101, .rank = 3};
  const auto gradient = draw_gradient(m.size(), 1);
  const auto before = draw_gradient(m.size(), 2);
  const auto q = draw_gradient(m.q_size(), 3);
  std::vector<float> error = before, p(m.p_size()), back(m.q_size());
  m.project(gradient, error, q, p);
  m.project_back(error, p, back);
  for (std::size_t k = 0; k < m.rank; ++k) {
    for (std::size_t row = 0; row < m.rows; ++row) {
      double sum = 0;
      for (std::size_t c = 0; c < m.columns; ++c) {
        const std::size_t i = row * m.columns + c;
        ASSERT_FLOAT_EQ(error[i], gradient[i] + before[i]);
        sum += double(error[i]) * q[k * m.columns + c];
      }
      ASSERT_NEAR(p[k * m.rows + row], sum, 1e-4);
    }
    for (std::size_t c = 0; c < m.columns; ++c) {
      double sum = 0;
      for (std::size_t row = 0; row < m.rows; ++row) {
        sum += double(error[row * m.columns + c]) * p[k * m.rows + row];
      }
      ASSERT_NEAR(back[k * m.columns + c], sum, 1e-3);
    }
  }
  std::vector<float> product = gradient, left = error;
  m.approximate(p, back, product, left);
  for (std::size_t i = 0; i < m.size(); ++i) {
    double sum = 0;
    for (std::size_t k = 0; k < m.rank; ++k) {
      sum += double(p[k * m.rows + i / m.columns]) * back[k * m.columns + i % m.columns];
    }
    ASSERT_NEAR(product[i], sum, 1e-3 * (1 + std::abs(sum)));
    ASSERT_FLOAT_EQ(left[i], error[i] - product[i]);
  }
}

TEST(PowerSgdMatrix, ColumnsBecomeOrthonormalAndDependentOnesZero) {
  const exchange::PowerSgdMatrix m{.rows = 50, .columns = 60, .rank = 4};
  auto p = draw_gradient(m.p_size(), 9);
  for (std::size_t i = 0; i < m.rows; ++i) p[2 * m.rows + i] = 3 * p[i] - p[m.rows + i];
  m.orthonormalize(p);
  for (std::size_t a = 0; a < 4; ++a) {
    for (std::size_t b = 0; b < 4; ++b) {
      const double expected = a == b && a != 2 ? 1 : 0;
      EXPECT_NEAR(
          dot(std::span(p).subspan(a * m.rows, m.rows), std::span(p).subspan(b * m.rows, m.rows)),
          expected, 1e-5)
          << a << b;
    }
  }
}

TEST(PowerSgdMatrix, ColumnsThatCannotRecoverAreDrawnAnew) {
  const exchange::PowerSgdMatrix m{.rows = 5, .columns = 6, .rank = 3};
  std::vector<float> q(m.q_size(), 0.0f);
  for (std::size_t i = 0; i < 6; ++i) q[6 + i] = static_cast<float>(i);
  q[12] = std::nanf("");
  const std::vector<float> kept(q.begin() + 6, q.begin() + 12);
  m.revive(q, 3);
  EXPECT_EQ(std::vector<float>(q.begin() + 6, q.begin() + 12), kept);
  EXPECT_GT(dot(std::span(q).first(6), std::span(q).first(6)), 0.01);
  EXPECT_TRUE(std::isfinite(dot(std::span(q).last(6), std::span(q).last(6))));
}

TEST(PowerSgd, AMatrixOfItsRankIsDeliveredWhole) {
  constexpr std::size_t kRows = 96;
  exchange::UnitShape shape{.count = kRows * 80 + 5};
  shape.tensors = {{"bias", 0, 5, 1}, {"weight", 5, kRows, 80}};
  LocalJob job(4);
  const auto errors = job.run([&](Rank rank, Communicator& c) {
    const auto exchange = exchange::make_exchange(shared(c), {shape}, {.codec = "power_sgd:2"});
    Started started(*exchange);
    for (std::uint64_t step = 0; step < 3; ++step) {
      // The mean has rank 2; the ranks' own gradients do not.
      auto expected = low_rank_matrix(kRows, 80, 2, 40 + step);
      auto gradient = expected;
      const auto noise = draw_gradient(gradient.size(), 7 + step);
      const float sign = rank % 2 == 0 ? 1.0f : -1.0f;
      for (std::size_t i = 0; i < noise.size(); ++i) gradient[i] += sign * noise[i];
      gradient.insert(gradient.begin(), 5, static_cast<float>(rank));
      started.start(0, {gradient.data(), gradient.size(), DataType::float32, nullptr}, 0);
      started.wait(0);
      exchange->end_pass();
      EXPECT_EQ(std::vector<float>(gradient.begin(), gradient.begin() + 5),
                std::vector<float>(5, 1.5f));
      const std::vector<double> got(gradient.begin() + 5, gradient.end());
      const std::vector<double> want(expected.begin(), expected.end());
      EXPECT_LT(relative_error(got, want), 1e-4) << step;
    }
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

TEST(PowerSgd, SendsTheFactorsAndWhatIsNoMatrix) {
  exchange::UnitShape shape{.count = 100 * 64 + 64 + 6};
  shape.tensors = {{"weight", 0, 100, 64}, {"bias", 6400, 64, 1}, {"tiny", 6464, 2, 3}};
  LocalJob job(2);
  const auto errors = job.run([&](Rank, Communicator& c) {
    const auto exchange = exchange::make_exchange(shared(c), {shape}, {.codec = "power_sgd:2"});
    Started started(*exchange);
    std::vector<float> gradient = draw_gradient(shape.count, 1);
    const std::size_t before = c.payload_bytes_sent();
    started.start(0, {gradient.data(), gradient.size(), DataType::float32, nullptr}, 0);
    started.wait(0);
    c.barrier().wait();
    // All-reduces of two ranks send at most all values once each way, with any algorithm.
    const std::size_t values = 2 * 100 + 64 + 6 + 2 * 64;
    EXPECT_LE(c.payload_bytes_sent() - before, 4 * values);
    EXPECT_GE(c.payload_bytes_sent() - before, 2 * values);
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

}  // namespace
}  // namespace gradwire::test
