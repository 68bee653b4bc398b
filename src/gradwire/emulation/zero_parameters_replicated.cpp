#include <utility>
#include <vector>

#include "gradwire/emulation/zero_parameters.h"

namespace gradwire {
namespace {

class ReplicatedParameters final : public ZeroParameters {
 public:
  ReplicatedParameters(const ZeroUnits& units, ShardExchange& exchange)
      : units_(units), exchange_(exchange), visits_{units.layers()}, gathering_(units.size()) {
    for (std::size_t unit = 0; unit < units.size(); ++unit) values_.emplace_back(units.count(unit));
  }

  bool use(std::int64_t visit) override {
    const std::size_t layer = visits_.layer_of(visit);
    bool waited = false;
    for (const std::size_t unit : units_.of_layer[layer]) {
      waited |= await(unit);
      check_version(values_[unit], units_.ranks, visits_.step_of(visit), layer, unit);
    }
    return waited;
  }

  void leave(std::int64_t) override {}

  void stepped(std::size_t unit, std::int64_t visit) override {
    std::vector<float>& values = values_[unit];
    const std::size_t shard = units_.shards[unit];
    const std::span<float> own =
        std::span(values).subspan(static_cast<std::size_t>(units_.rank) * shard, shard);
    mark_version(own, visits_.step_of(visit) + 1);
    exchange_.start_gather(unit, {own.data(), shard, DataType::float32},
                           {.data = values.data(), .count = values.size()},
                           priority_of(visits_.forward_after(visit, units_.first_layer[unit])));
    gathering_[unit] = true;
  }

  void finish(std::int64_t /*visit*/) override {
    for (std::size_t unit = 0; unit < units_.size(); ++unit) await(unit);
  }

  std::size_t peak_bytes() const override { return units_.bytes(); }

 private:
  bool await(std::size_t unit) {
    if (!gathering_[unit]) return false;
    const bool waits = !exchange_.gathered(unit);
    exchange_.wait_gather(unit);
    gathering_[unit] = false;
    return waits;
  }

  const ZeroUnits& units_;
  ShardExchange& exchange_;
  LayerVisits visits_;
  std::vector<std::vector<float>> values_;  ///< By unit.
  std::vector<bool> gathering_;
};

}  // namespace

std::unique_ptr<ZeroParameters> replicated_parameters(const ZeroUnits& units,
                                                      ShardExchange& exchange) {
  return std::make_unique<ReplicatedParameters>(units, exchange);
}

}  // namespace gradwire
