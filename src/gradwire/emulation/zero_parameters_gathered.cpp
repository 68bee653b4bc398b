#include <algorithm>
#include <vector>

#include "gradwire/emulation/unit_pool.h"
#include "gradwire/emulation/zero_parameters.h"

namespace gradwire {
namespace {

class GatheredParameters final : public ZeroParameters {
 public:
  GatheredParameters(const ZeroUnits& units, ShardExchange& exchange, int prefetch)
      : units_(units), exchange_(exchange), visits_{units.layers()}, prefetch_(prefetch) {
    for (std::size_t unit = 0; unit < units.size(); ++unit)
      held_.push_back({.shard = std::vector<float>(units.shards[unit])});
  }

  bool use(std::int64_t visit) override {
    visit_ = visit;
    gather_for(visit);
    gather_ahead();
    const std::size_t layer = visits_.layer_of(visit);
    bool waited = false;
    for (const std::size_t unit : units_.of_layer[layer]) {
      waited |= await(unit);
      check_version(held_[unit].whole, units_.ranks, visits_.step_of(visit), layer, unit);
    }
    return waited;
  }

  void leave(std::int64_t visit) override {
    const std::size_t layer = visits_.layer_of(visit);
    for (std::size_t unit = 0; unit < units_.size(); ++unit) {
      if (held_[unit].whole.empty()) continue;
      const bool over = !visits_.is_forward(visit) && units_.first_layer[unit] == layer;
      if (over) held_[unit].steps = true;
      if (over || !needed_soon(unit, visit)) drop(unit);
    }
  }

  void stepped(std::size_t unit, std::int64_t visit) override {
    mark_version(held_[unit].shard, visits_.step_of(visit) + 1);
    held_[unit].steps = false;
    gather_ahead();
  }

  /// Starts all gathers that any rank may have started ahead. A unit is prefetched only if its
  /// gradient has arrived, which differs between ranks; a gather started by some ranks only would
  /// never complete.
  void finish(std::int64_t visit) override {
    for (std::int64_t next = visit; next < visit + prefetch_; ++next) gather_for(next);
    for (std::size_t unit = 0; unit < units_.size(); ++unit) await(unit);
  }

  std::size_t peak_bytes() const override {
    return units_.bytes() / static_cast<std::size_t>(units_.ranks) + pool_.peak_bytes();
  }

 private:
  struct Unit {
    std::vector<float> shard;
    std::span<float> whole;  ///< Empty: neither present nor being gathered.
    bool gathering = false;
    bool steps = false;  ///< Its gradient is in flight: the shard's values are out of date.
  };

  void gather_ahead() {
    for (std::int64_t next = visit_ + 1; next <= visit_ + prefetch_; ++next) gather_for(next);
  }

  void gather_for(std::int64_t visit) {
    for (const std::size_t unit : units_.of_layer[visits_.layer_of(visit)]) {
      Unit& u = held_[unit];
      if (u.steps || !u.whole.empty()) continue;
      u.whole = pool_.take(units_.count(unit));
      mark_absent(u.whole, units_.ranks);
      exchange_.start_gather(unit, {u.shard.data(), u.shard.size(), DataType::float32},
                             {.data = u.whole.data(), .count = u.whole.size()}, priority_of(visit));
      u.gathering = true;
    }
  }

  bool await(std::size_t unit) {
    if (!held_[unit].gathering) return false;
    const bool waits = !exchange_.gathered(unit);
    exchange_.wait_gather(unit);
    held_[unit].gathering = false;
    return waits;
  }

  bool needed_soon(std::size_t unit, std::int64_t visit) const {
    for (std::int64_t next = visit + 1; next <= visit + prefetch_; ++next) {
      if (std::ranges::count(units_.of_layer[visits_.layer_of(next)], unit) > 0) return true;
    }
    return false;
  }

  void drop(std::size_t unit) {
    await(unit);
    pool_.release(std::exchange(held_[unit].whole, {}));
  }

  const ZeroUnits& units_;
  ShardExchange& exchange_;
  LayerVisits visits_;
  std::int64_t prefetch_;
  std::int64_t visit_ = 0;  ///< The last visit passed to use().
  std::vector<Unit> held_;
  UnitPool pool_;
};

}  // namespace

std::unique_ptr<ZeroParameters> gathered_parameters(const ZeroUnits& units, ShardExchange& exchange,
                                                    int prefetch) {
  return std::make_unique<GatheredParameters>(units, exchange, prefetch);
}

}  // namespace gradwire
