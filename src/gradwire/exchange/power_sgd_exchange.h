#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gradwire/exchange/coded_layout.h"
#include "gradwire/exchange/compressed_exchange.h"
#include "gradwire/exchange/exchange.h"
#include "gradwire/exchange/power_sgd_matrix.h"

namespace gradwire::exchange {

/// PowerSGD's state of one unit. The order of calls is compute_p(), an all-reduce (mean) of p(),
/// compute_q(), one of q(), decompress().
class PowerSgdUnit {
 public:
  PowerSgdUnit(const UnitShape& shape, std::size_t rank);

  bool has_matrices() const { return !matrices_.empty(); }

  /// `seed`: the same on all ranks, different in each step.
  void compute_p(std::span<const float> gradients, std::uint64_t seed);
  void compute_q();
  void decompress(std::span<float> gradients);

  /// Memory shared with operations, which may end after this object.
  LentSpan p() const { return {p_.get(), p_count_, DataType::float32, p_}; }
  LentSpan q() const { return {q_.get(), q_count_, DataType::float32, q_}; }

  /// Adds the error-feedback residual to `gradients` and zeros it.
  void apply_residuals(std::span<float> gradients);

  void add_state(std::vector<Exchange::State>& all);

 private:
  struct Matrix {
    std::string name;
    PowerSgdMatrix math;
    std::size_t offset = 0;  ///< In the unit.
    std::size_t p = 0, q = 0, error = 0;
    std::span<float> error_in(std::span<float> errors) const {
      return errors.subspan(error, math.size());
    }
  };

  std::span<float> p_of(const Matrix& m) const { return {p_.get() + m.p, m.math.p_size()}; }
  std::span<float> q_of(const Matrix& m) const { return {q_.get() + m.q, m.math.q_size()}; }

  std::vector<Matrix> matrices_;
  std::vector<CodedRange> rest_;  ///< Uncompressed elements of the unit; stored after all P.
  std::size_t p_count_ = 0;
  std::size_t p_of_matrices_ = 0;
  std::size_t q_count_ = 0;
  std::shared_ptr<float[]> p_;
  std::shared_ptr<float[]> q_;
  std::vector<float> error_;
};

/// Averages matrices as products of two factors with `rank` columns (PowerSgdMatrix); each step
/// starts with the Q of the step before. A unit takes two all-reduces: of the P of all its
/// matrices, together with the tensors that are not matrices or would gain nothing and are
/// uncompressed; and of all Q. Each matrix has memory for its error-feedback residual.
///
/// For the first ExchangeOptions::warmup_steps steps gradients are sent uncompressed. State:
/// "PARAMETER.sent" (the residual), "PARAMETER.q" and "codec.step" (int64: steps so far).
std::unique_ptr<CompressedExchange> power_sgd_exchange(std::unique_ptr<Exchange> plain,
                                                       std::shared_ptr<Communicator> communicator,
                                                       std::vector<UnitShape> units,
                                                       std::size_t rank,
                                                       const ExchangeOptions& options);

}  // namespace gradwire::exchange
