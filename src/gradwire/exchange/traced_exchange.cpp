#include "gradwire/exchange/traced_exchange.h"

#include <string>
#include <utility>

#include <fmt/format.h>

namespace gradwire::exchange {
namespace {

class TracedTransfer final : public UnitTransfer {
 public:
  TracedTransfer(std::unique_ptr<UnitTransfer> transfer, std::string name, TraceRecorder& recorder)
      : transfer_(std::move(transfer)), name_(std::move(name)), recorder_(recorder) {}

  bool done() override { return transfer_->done(); }
  void wait() override {
    if (transfer_->done()) return transfer_->wait();
    const std::string name = "wait for " + name_;
    const TraceScope scope(&recorder_, TraceKind::wait, name);
    transfer_->wait();
  }
  void on_done(std::function<void()> callback) override { transfer_->on_done(std::move(callback)); }

 private:
  std::unique_ptr<UnitTransfer> transfer_;
  std::string name_;
  TraceRecorder& recorder_;
};

class TracedExchange final : public ExchangeDecorator {
 public:
  TracedExchange(std::unique_ptr<Exchange> exchange, TraceRecorder& recorder)
      : ExchangeDecorator(std::move(exchange)), recorder_(recorder) {}

  std::unique_ptr<UnitTransfer> all_reduce(std::size_t unit, LentSpan data, int priority) override {
    const Begin begin = begun("bucket", unit, data);
    return traced(begin, inner().all_reduce(unit, std::move(data), priority));
  }
  std::unique_ptr<UnitTransfer> reduce_scatter(std::size_t unit, LentSpan data, LentSpan shard,
                                               int priority) override {
    const Begin begin = begun("reduce", unit, data);
    return traced(begin, inner().reduce_scatter(unit, std::move(data), std::move(shard), priority));
  }
  std::unique_ptr<UnitTransfer> all_gather(std::size_t unit, LentConstSpan shard, LentSpan data,
                                           int priority) override {
    const Begin begin = begun("gather", unit, data);
    return traced(begin, inner().all_gather(unit, std::move(shard), std::move(data), priority));
  }

 private:
  struct Begin {
    std::string name;
    std::int64_t step = -1;
    Time time{};
    std::uint64_t bytes = 0;
  };

  Begin begun(const char* kind, std::size_t unit, const LentSpan& data) const {
    return {fmt::format("{} {}", kind, unit), recorder_.step(), recorder_.now(),
            data.count * size_of(data.type)};
  }

  std::unique_ptr<UnitTransfer> traced(const Begin& begin, std::unique_ptr<UnitTransfer> transfer) {
    transfer->on_done([&recorder = recorder_, begin] {
      recorder.record(TraceKind::communication, begin.name, begin.step, begin.time, recorder.now(),
                      begin.bytes);
    });
    return std::make_unique<TracedTransfer>(std::move(transfer), begin.name, recorder_);
  }

  TraceRecorder& recorder_;
};

}  // namespace

std::unique_ptr<Exchange> traced_exchange(std::unique_ptr<Exchange> exchange,
                                          TraceRecorder* recorder) {
  if (recorder == nullptr) return exchange;
  return std::make_unique<TracedExchange>(std::move(exchange), *recorder);
}

}  // namespace gradwire::exchange
