#include "gradwire/train/zero/work_exchange.h"

#include <utility>

#include <fmt/format.h>

namespace gradwire {

bool WorkExchange::reduced(std::size_t index) {
  const auto& work = reductions_.at(index).work;
  return !work || work->isCompleted();
}

WorkExchange::Operation& WorkExchange::begin_reduction(std::size_t index,
                                                       const torch::Tensor& unit) {
  return reductions_.at(index) = begun("reduce", index, unit);
}

WorkExchange::Operation& WorkExchange::begin_gather(std::size_t index, const torch::Tensor& unit) {
  return gathers_.at(index) = begun("gather", index, unit);
}

WorkExchange::Operation WorkExchange::begun(const char* kind, std::size_t index,
                                            const torch::Tensor& unit) const {
  if (trace_ == nullptr) return {};
  return {nullptr,        nullptr,       fmt::format("{} {}", kind, index),
          trace_->step(), trace_->now(), unit.nbytes()};
}

void WorkExchange::wait(Operation& slot) {
  auto over = std::exchange(slot, {});
  if (!over.work) return;
  {
    const std::string name = "wait for " + over.name;
    const TraceScope scope(over.work->isCompleted() ? nullptr : trace_, TraceKind::wait, name);
    over.work->wait();
  }
  const torch::NoGradGuard no_grad;
  if (over.finish) over.finish();
  if (trace_ == nullptr) return;
  trace_->record(TraceKind::communication, over.name, over.step, over.begin, trace_->now(),
                 over.bytes);
}

}  // namespace gradwire
