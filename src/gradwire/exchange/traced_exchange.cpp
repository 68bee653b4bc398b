#include "gradwire/exchange/traced_exchange.h"

#include <string>
#include <utility>

#include <fmt/format.h>

namespace gradwire::exchange {
namespace {

class TracedExchange final : public ExchangeDecorator {
 public:
  TracedExchange(std::unique_ptr<Exchange> exchange, TraceRecorder& recorder)
      : ExchangeDecorator(std::move(exchange)), recorder_(recorder) {}

  Work all_reduce(std::size_t unit, LentSpan data, int priority) override {
    const Begin begin = begun("bucket", unit, data);
    return traced(begin, inner().all_reduce(unit, std::move(data), priority));
  }
  Work reduce_scatter(std::size_t unit, LentSpan data, LentSpan shard, int priority) override {
    const Begin begin = begun("reduce", unit, data);
    return traced(begin, inner().reduce_scatter(unit, std::move(data), std::move(shard), priority));
  }
  Work all_gather(std::size_t unit, LentConstSpan shard, LentSpan data, int priority) override {
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

  Work traced(const Begin& begin, Work work) {
    work.on_done([&recorder = recorder_, begin](const Work&) {
      recorder.record(TraceKind::communication, begin.name, begin.step, begin.time, recorder.now(),
                      begin.bytes);
    });
    return work_with_wait(std::move(work), [&recorder = recorder_, name = "wait for " + begin.name](
                                               const Work& in_flight) {
      const TraceScope scope(&recorder, TraceKind::wait, name);
      in_flight.wait();
    });
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
