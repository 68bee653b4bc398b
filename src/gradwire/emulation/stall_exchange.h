#pragma once

#include <memory>

#include "gradwire/emulation/emulated_device.h"
#include "gradwire/exchange/exchange.h"

namespace gradwire {

/// Decorator that reports to an emulated device that it had to wait for communication.
class StallExchange final : public Exchange {
 public:
  /// Both must outlive this.
  StallExchange(Exchange& exchange, EmulatedDevice& device)
      : exchange_(exchange), device_(device) {}

  std::unique_ptr<UnitTransfer> all_reduce(std::size_t unit, LentSpan data, int priority) override;
  std::unique_ptr<UnitTransfer> reduce_scatter(std::size_t unit, LentSpan data, LentSpan shard,
                                               int priority) override;
  std::unique_ptr<UnitTransfer> all_gather(std::size_t unit, LentConstSpan shard, LentSpan data,
                                           int priority) override;
  ExchangeTraits traits() const override { return exchange_.traits(); }
  void end_pass() override { exchange_.end_pass(); }
  std::string describe() const override { return exchange_.describe(); }

 private:
  Exchange& exchange_;
  EmulatedDevice& device_;
};

}  // namespace gradwire
