#include "gradwire/emulation/stall_exchange.h"

#include <utility>

namespace gradwire::emulation {

Work StallExchange::all_reduce(std::size_t unit, LentSpan data, int priority) {
  return observed(inner().all_reduce(unit, std::move(data), priority));
}

Work StallExchange::reduce_scatter(std::size_t unit, LentSpan data, LentSpan shard, int priority) {
  return observed(inner().reduce_scatter(unit, std::move(data), std::move(shard), priority));
}

Work StallExchange::all_gather(std::size_t unit, LentConstSpan shard, LentSpan data, int priority) {
  return observed(inner().all_gather(unit, std::move(shard), std::move(data), priority));
}

Work StallExchange::observed(Work work) {
  return work_with_wait(std::move(work), [&device = device_](const Work& in_flight) {
    in_flight.wait();
    device.resume();
  });
}

}  // namespace gradwire::emulation
