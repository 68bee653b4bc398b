#include "gradwire/exchange/power_sgd_exchange.h"

#include <utility>

#include <fmt/format.h>

#include "gradwire/base/random.h"
#include "gradwire/exchange/exchange_state.h"
#include "gradwire/exchange/power_sgd_unit.h"

namespace gradwire {
namespace {

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
  void load_state(const std::vector<SavedState>& saved) override {
    load_exchange_state(state(), saved);
  }
  std::string describe() const override {
    return fmt::format("power_sgd: matrices are sent as two factors of {} column{}", rank_,
                       rank_ == 1 ? "" : "s");
  }

 protected:
  bool is_ready() const override { return step() >= options().warmup_steps; }
  std::size_t pieces_of(std::size_t unit) const override {
    return low_rank_[unit].has_matrices() ? 1 : 0;
  }
  void apply_residuals(std::size_t unit, std::span<float> gradients) override {
    low_rank_[unit].apply_residuals(gradients);
  }

  void begin_coded(std::size_t unit) override {
    const std::uint64_t seed =
        Random(Random(options().seed + static_cast<std::uint64_t>(step())).next() + unit).next();
    add_task(unit, kFirst, [this, unit, seed] {
      low_rank_[unit].compute_p(coded(unit).data, seed);
      add_task_after(average(unit, low_rank_[unit].p()), unit, kSecond,
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
    add_task_after(average(unit, low_rank_[unit].q()), unit, kThird, [this, unit] {
      low_rank_[unit].decompress(coded(unit).data);
      piece_done(unit);
    });
  }

  std::size_t rank_;
  std::vector<PowerSgdUnit> low_rank_;
};

}  // namespace

std::unique_ptr<CompressedExchange> power_sgd_exchange(std::unique_ptr<Exchange> plain,
                                                       std::shared_ptr<Communicator> communicator,
                                                       std::vector<UnitShape> units,
                                                       std::size_t rank,
                                                       const ExchangeOptions& options) {
  return std::make_unique<PowerSgdExchange>(std::move(plain), std::move(communicator),
                                            std::move(units), rank, options);
}

}  // namespace gradwire
