#pragma once

#include "gradwire/emulation/emulated_device.h"
#include "gradwire/exchange/exchange.h"

namespace gradwire::emulation {

/// Decorator that reports to an emulated device that it had to wait for communication.
class StallExchange final : public exchange::ExchangeDecorator {
 public:
  /// Both must outlive this.
  StallExchange(exchange::Exchange& exchange, EmulatedDevice& device)
      : exchange::ExchangeDecorator(exchange), device_(device) {}

  Work all_reduce(std::size_t unit, LentSpan data, int priority) override;
  Work reduce_scatter(std::size_t unit, LentSpan data, LentSpan shard, int priority) override;
  Work all_gather(std::size_t unit, LentConstSpan shard, LentSpan data, int priority) override;

 private:
  Work observed(Work work);

  EmulatedDevice& device_;
};

}  // namespace gradwire::emulation
