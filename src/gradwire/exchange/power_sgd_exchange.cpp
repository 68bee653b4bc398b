#include "gradwire/exchange/power_sgd_exchange.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "gradwire/base/random.h"
#include "gradwire/exchange/exchange_state.h"

namespace gradwire::exchange {
namespace {

/// Returns true if the two factors of a matrix are smaller than the matrix.
bool is_worth_it(const PowerSgdMatrix& m) {
  return m.rank > 0 && m.p_size() + m.q_size() < m.size();
}

std::shared_ptr<float[]> zeros(std::size_t count) {
  return std::shared_ptr<float[]>(new float[count]());  // NOLINT
}

class PowerSgdExchange final : public CompressedExchange {
 public:
  PowerSgdExchange(std::unique_ptr<Exchange> plain, std::shared_ptr<Communicator> communicator,
                   std::vector<UnitShape> shapes, std::size_t rank, const ExchangeOptions& options)
      : CompressedExchange(std::move(plain), std::move(communicator), std::move(shapes), options),
        rank_(rank) {
    for (const UnitShape& shape : units()) low_rank_.emplace_back(shape, rank);
    reserve_lanes(low_rank_.size());
  }
  ~PowerSgdExchange() override { stop(); }

  std::vector<State> state() override {
    std::vector<State> all;
    for (PowerSgdUnit& unit : low_rank_) unit.add_state(all);
    all.push_back({"codec.step", {&step(), 1, DataType::int64, nullptr}});
    return all;
  }
  std::string describe() const override {
    return fmt::format("power_sgd: matrices are sent as two factors of {} column{}", rank_,
                       rank_ == 1 ? "" : "s");
  }

 protected:
  void restore(const std::vector<SavedState>& saved) override {
    load_exchange_state(state(), saved);
  }
  bool is_ready() const override { return step() >= options().warmup_steps; }
  std::size_t pieces_of(std::size_t unit) const override {
    return low_rank_[unit].has_matrices() ? 1 : 0;
  }
  void apply_residuals(std::size_t unit, std::span<float> gradients) override {
    low_rank_[unit].apply_residuals(gradients);
  }

  void begin_coded(std::size_t unit) override {
    const std::uint64_t seed =
        mixed_seed({options().seed, static_cast<std::uint64_t>(step()), unit});
    stages().add(unit, kFirst, [this, unit, seed] {
      low_rank_[unit].compute_p(coded(unit).data, seed);
      stages().add_after(average(unit, low_rank_[unit].p()), unit, kSecond,
                         [this, unit] { reduce_q(unit); });
    });
  }

 private:
  Work average(std::size_t unit, const LentSpan& factors) {
    return communicator().all_reduce(factors, ReduceOp::mean,
                                     operation(unit, static_cast<int>(unit)));
  }

  void reduce_q(std::size_t unit) {
    low_rank_[unit].compute_q();
    stages().add_after(average(unit, low_rank_[unit].q()), unit, kThird, [this, unit] {
      low_rank_[unit].decompress(coded(unit).data);
      stages().piece_done(unit);
    });
  }

  std::size_t rank_;
  std::vector<PowerSgdUnit> low_rank_;
};

}  // namespace

PowerSgdUnit::PowerSgdUnit(const UnitShape& shape, std::size_t rank) {
  std::size_t end = 0;  // End of the last matrix.
  std::size_t errors = 0;
  std::vector<UnitTensor> tensors =
      shape.skip_compression ? std::vector<UnitTensor>() : shape.tensors;
  std::ranges::sort(tensors, {}, &UnitTensor::offset);
  for (const UnitTensor& tensor : tensors) {
    const PowerSgdMatrix math{tensor.rows, tensor.columns,
                              std::min({rank, tensor.rows, tensor.columns})};
    if (!is_worth_it(math)) continue;
    matrices_.push_back({tensor.name, math, tensor.offset, p_count_, q_count_, errors});
    p_count_ += math.p_size();
    q_count_ += math.q_size();
    errors += math.size();
    if (tensor.offset > end) rest_.push_back({end, tensor.offset});
    end = tensor.offset + math.size();
  }
  if (matrices_.empty()) return;
  if (shape.count > end) rest_.push_back({end, shape.count});
  p_of_matrices_ = p_count_;
  for (const CodedRange& range : rest_) p_count_ += range.count();
  p_ = zeros(p_count_);
  q_ = zeros(q_count_);
  error_.resize(errors);
}

void PowerSgdUnit::compute_p(std::span<const float> gradients, std::uint64_t seed) {
  Random random(seed);
  for (const Matrix& m : matrices_) {
    m.math.revive(q_of(m), random.next());
    m.math.project(gradients.subspan(m.offset, m.math.size()), m.error_in(error_), q_of(m),
                   p_of(m));
  }
  float* to = p_.get() + p_of_matrices_;
  for (const CodedRange& range : rest_) {
    to = std::ranges::copy(gradients.subspan(range.begin, range.count()), to).out;
  }
}

void PowerSgdUnit::compute_q() {
  for (const Matrix& m : matrices_) {
    m.math.orthonormalize(p_of(m));
    m.math.project_back(m.error_in(error_), p_of(m), q_of(m));
  }
}

void PowerSgdUnit::decompress(std::span<float> gradients) {
  for (const Matrix& m : matrices_) {
    m.math.approximate(p_of(m), q_of(m), gradients.subspan(m.offset, m.math.size()),
                       m.error_in(error_));
  }
  const float* from = p_.get() + p_of_matrices_;
  for (const CodedRange& range : rest_) {
    std::copy_n(from, range.count(), gradients.data() + range.begin);
    from += range.count();
  }
}

void PowerSgdUnit::apply_residuals(std::span<float> gradients) {
  for (const Matrix& m : matrices_) {
    const std::span<float> residual = m.error_in(error_);
    for (std::size_t i = 0; i < residual.size(); ++i) gradients[m.offset + i] += residual[i];
  }
  std::ranges::fill(error_, 0.0f);
}

void PowerSgdUnit::add_state(std::vector<Exchange::State>& all) {
  for (const Matrix& m : matrices_) {
    const std::span<float> residual = m.error_in(error_);
    all.push_back(
        {m.name + ".sent", {residual.data(), residual.size(), DataType::float32, nullptr}});
    all.push_back({m.name + ".q", {q_of(m).data(), m.math.q_size(), DataType::float32, nullptr}});
  }
}

std::unique_ptr<CompressedExchange> power_sgd_exchange(std::unique_ptr<Exchange> plain,
                                                       std::shared_ptr<Communicator> communicator,
                                                       std::vector<UnitShape> units,
                                                       std::size_t rank,
                                                       const ExchangeOptions& options) {
  return std::make_unique<PowerSgdExchange>(std::move(plain), std::move(communicator),
                                            std::move(units), rank, options);
}

}  // namespace gradwire::exchange
