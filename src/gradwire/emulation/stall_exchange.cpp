#include "gradwire/emulation/stall_exchange.h"

#include <utility>

namespace gradwire::emulation {
namespace {

class StallTransfer final : public exchange::UnitTransfer {
 public:
  StallTransfer(std::unique_ptr<exchange::UnitTransfer> transfer, EmulatedDevice& device)
      : transfer_(std::move(transfer)), device_(device) {}

  bool done() override { return transfer_->done(); }
  void wait() override {
    const bool blocks = !transfer_->done();
    transfer_->wait();
    if (blocks) device_.resume();
  }
  void on_done(std::function<void()> callback) override { transfer_->on_done(std::move(callback)); }

 private:
  std::unique_ptr<exchange::UnitTransfer> transfer_;
  EmulatedDevice& device_;
};

}  // namespace

std::unique_ptr<exchange::UnitTransfer> StallExchange::all_reduce(std::size_t unit, LentSpan data,
                                                                  int priority) {
  return std::make_unique<StallTransfer>(inner().all_reduce(unit, std::move(data), priority),
                                         device_);
}

std::unique_ptr<exchange::UnitTransfer> StallExchange::reduce_scatter(std::size_t unit,
                                                                      LentSpan data, LentSpan shard,
                                                                      int priority) {
  return std::make_unique<StallTransfer>(
      inner().reduce_scatter(unit, std::move(data), std::move(shard), priority), device_);
}

std::unique_ptr<exchange::UnitTransfer> StallExchange::all_gather(std::size_t unit,
                                                                  LentConstSpan shard,
                                                                  LentSpan data, int priority) {
  return std::make_unique<StallTransfer>(
      inner().all_gather(unit, std::move(shard), std::move(data), priority), device_);
}

}  // namespace gradwire::emulation
