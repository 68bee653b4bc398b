#include "gradwire/torch/tensor_work.h"

#include <algorithm>
#include <atomic>
#include <chrono>

#include <ATen/core/ivalue.h>
#include <fmt/format.h>

#include "gradwire/base/clock.h"

namespace gradwire {

TensorWork::TensorWork(Rank rank, c10d::OpType type, std::vector<gradwire::Work> parts,
                       std::vector<at::Tensor> outputs, std::function<void()> finish)
    : c10d::Work(rank, type), state_(std::make_shared<State>()) {
  state_->parts = std::move(parts);
  state_->outputs = std::move(outputs);
  state_->finish = std::move(finish);
}

bool TensorWork::State::done() const {
  return std::ranges::all_of(parts, [](const auto& part) { return part.done(); });
}

std::exception_ptr TensorWork::State::error() const {
  for (const auto& part : parts) {
    if (const auto error = part.error()) return std::make_exception_ptr(Exception(*error));
  }
  return nullptr;
}

void TensorWork::State::finish_once() {
  std::call_once(finished, [this] {
    if (finish) finish();
  });
}

bool TensorWork::isCompleted() {
  if (!state_->done()) return false;
  if (!state_->error()) state_->finish_once();
  return true;
}

bool TensorWork::isSuccess() const {
  return state_->done() && !state_->error();
}

std::exception_ptr TensorWork::exception() const {
  return state_->error();
}

bool TensorWork::wait(std::chrono::milliseconds timeout) {
  const SteadyClock clock;
  const auto deadline = clock.now() + timeout;
  for (const auto& part : state_->parts) {
    if (timeout <= kNoTimeout) {
      part.wait();
    } else if (!part.wait_for(std::max<Duration>(deadline - clock.now(), {}))) {
      throw Exception(ErrorKind::timeout,
                      fmt::format("rank {}: {} is still under way after {} ms; its buffers stay "
                                  "lent until it completes",
                                  rank_, c10d::opTypeToString(opType_), timeout.count()));
    }
  }
  state_->finish_once();
  return true;
}

void TensorWork::complete(State& state, c10::ivalue::Future& future) {
  if (const auto error = state.error()) {
    future.setError(error);
    return;
  }
  state.finish_once();
  future.markCompleted(c10::IValue(state.outputs));
}

c10::intrusive_ptr<c10::ivalue::Future> TensorWork::getFuture() {
  const std::lock_guard lock(future_mutex_);
  if (future_) return future_;
  future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::ofTensors());
  if (state_->parts.empty()) complete(*state_, *future_);
  auto left = std::make_shared<std::atomic<std::size_t>>(state_->parts.size());
  for (const auto& part : state_->parts) {
    part.on_done([state = state_, future = future_, left](const gradwire::Work&) {
      if (left->fetch_sub(1) == 1) complete(*state, *future);
    });
  }
  return future_;
}

}  // namespace gradwire
