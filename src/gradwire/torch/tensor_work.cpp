#include "gradwire/torch/tensor_work.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <iterator>
#include <utility>

#include <ATen/core/ivalue.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <fmt/format.h>

#include "gradwire/base/clock.h"
#include "gradwire/base/refuse.h"

namespace gradwire {

std::function<void()> with_thread_state(std::function<void()> task) {
  return [task = std::move(task), state = c10::ThreadLocalDebugInfo::current()]() mutable {
    const c10::DebugInfoGuard as_there(state);
    task();
    task = nullptr;
  };
}

TensorWork::TensorWork(Rank rank, std::uint64_t number, TensorOperation operation,
                       std::shared_ptr<CompletionThreads> threads,
                       std::shared_ptr<UnmovedResults> unmoved)
    : c10d::Work(rank, operation.type),
      state_(std::make_shared<State>()),
      number_(number),
      threads_(std::move(threads)) {
  state_->operation = std::move(operation);
  state_->unmoved = unmoved;
  const bool moves = state_->operation.finish && !state_->operation.outputs.empty();
  if (moves) unmoved->add(state_);
}

void TensorWork::finish_with(std::function<void()> then, std::vector<at::Tensor> outputs) {
  TensorOperation& operation = state_->operation;
  {
    const std::lock_guard lock(state_->finishing);
    operation.outputs = std::move(outputs);
    if (state_->finished) return then();
    operation.finish = [first = std::move(operation.finish), then = std::move(then)] {
      if (first) first();
      then();
    };
  }
  if (const auto unmoved = state_->unmoved.lock()) unmoved->add(state_);
}

void TensorWork::report_to(std::shared_ptr<Hooks> hooks, std::uint64_t key) {
  key_ = key;
  state_->hooks = std::move(hooks);
  state_->parts_left = state_->operation.parts.size();
  const auto posted = SteadyClock().now();
  for (const auto& part : state_->operation.parts) {
    part.on_done([state = state_, key, posted, threads = threads_](const gradwire::Work&) {
      state->part_is_done(key, posted, *threads);
    });
  }
}

void TensorWork::State::part_is_done(std::uint64_t key, Time posted, CompletionThreads& threads) {
  if (parts_left.fetch_sub(1) != 1) return;
  if (error()) {
    threads.run([hooks = hooks] { hooks->failed(); });
    return;
  }
  const std::chrono::duration<float, std::milli> took = SteadyClock().now() - posted;
  hooks->completed(key, took.count());
}

bool TensorWork::State::done() const {
  return std::ranges::all_of(operation.parts, [](const auto& part) { return part.done(); });
}

std::exception_ptr TensorWork::State::error() const {
  for (const auto& part : operation.parts) {
    if (const auto error = part.error()) return std::make_exception_ptr(Exception(*error));
  }
  return nullptr;
}

void TensorWork::State::finish_once() {
  const std::lock_guard lock(finishing);
  if (finished) return;
  if (operation.finish) {
    operation.finish();
    if (const auto list = unmoved.lock()) list->remove(shared_from_this());
  }
  finished = true;
}

std::exception_ptr TensorWork::State::finish_or_error() noexcept {
  if (const auto failed = error()) return failed;
  try {
    finish_once();
    return nullptr;
  } catch (...) {
    return std::current_exception();
  }
}

bool TensorWork::isCompleted() {
  if (!state_->done()) return false;
  if (!state_->error()) state_->finish_once();
  return true;
}

bool TensorWork::isSuccess() const {
  return state_->done() && !state_->finish_or_error();
}

std::exception_ptr TensorWork::exception() const {
  return state_->error();
}

int TensorWork::sourceRank() const {
  if (opType_ == c10d::OpType::RECVANYSOURCE && state_->done()) {
    return state_->operation.parts.front().source();
  }
  refuse("rank {}: only a completed receive from any rank has a source, not this {}", rank_,
         c10d::opTypeToString(opType_));
}

bool TensorWork::wait(std::chrono::milliseconds timeout) {
  try {
    wait_for_parts(timeout);
  } catch (...) {
    if (state_->hooks) state_->hooks->failed();
    throw;
  }
  state_->finish_once();
  return true;
}

void TensorWork::wait_for_parts(std::chrono::milliseconds timeout) const {
  const SteadyClock clock;
  const auto deadline = clock.now() + timeout;
  for (const auto& part : state_->operation.parts) {
    if (timeout <= kNoTimeout) {
      part.wait();
    } else if (!part.wait_for(std::max<Duration>(deadline - clock.now(), {}))) {
      throw Exception(ErrorKind::timeout,
                      fmt::format("rank {}: {} is still in flight after {} ms; its buffers remain "
                                  "in use until it completes",
                                  rank_, c10d::opTypeToString(opType_), timeout.count()));
    }
  }
}

void TensorWork::complete(State& state, c10::ivalue::Future& future) {
  if (const auto error = state.finish_or_error()) {
    future.setError(error);
    return;
  }
  future.markCompleted(c10::IValue(state.operation.outputs));
}

/// Runs `then` immediately if the operation is done, else on a completion thread.
void TensorWork::when_done(const std::function<void()>& then) const {
  if (state_->done()) return then();
  const auto& parts = state_->operation.parts;
  auto left = std::make_shared<std::atomic<std::size_t>>(parts.size());
  for (const auto& part : parts) {
    part.on_done([threads = threads_, then, left](const gradwire::Work&) {
      if (left->fetch_sub(1) == 1) threads->run(then);
    });
    part.drive_in_background();
  }
}

c10::intrusive_ptr<c10::ivalue::Future> TensorWork::getFuture() {
  const std::lock_guard lock(future_mutex_);
  if (future_) return future_;
  future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::ofTensors());
  when_done([state = state_, future = future_] { complete(*state, *future); });
  return future_;
}

c10::intrusive_ptr<c10::ivalue::Future> TensorWork::getFutureResult() {
  auto future = c10::make_intrusive<c10::ivalue::Future>(c10::AnyEnumType::get());
  when_done([state = state_, future] {
    const auto result =
        state->finish_or_error() ? c10d::WorkResult::COMM_ERROR : c10d::WorkResult::SUCCESS;
    future->markCompleted(c10::IValue(static_cast<std::uint8_t>(result)));
  });
  return future;
}

/// Also moves results of completed operations that no caller waited for.
void UnmovedResults::add(const std::shared_ptr<State>& state) {
  move();
  const std::lock_guard lock(mutex_);
  states_.insert(state);
}

void UnmovedResults::remove(const std::shared_ptr<State>& state) {
  const std::lock_guard lock(mutex_);
  states_.erase(state);
}

void UnmovedResults::move() {
  std::vector<std::shared_ptr<State>> done;
  {
    const std::lock_guard lock(mutex_);
    std::ranges::copy_if(states_, std::back_inserter(done),
                         [](const auto& state) { return state->done(); });
  }
  for (const auto& state : done) {
    state->finish_or_error();
    remove(state);  // Also removes failed operations.
  }
}

void CoalescedWorks::start() {
  List forgotten;  // Frees its tensors after the lock is released.
  const std::lock_guard lock(mutex_);
  std::swap(lists_[std::this_thread::get_id()], forgotten);
}

void CoalescedWorks::add(const WorkPointer& work) {
  List* list = nullptr;
  {
    const std::lock_guard lock(mutex_);
    const auto found = lists_.find(std::this_thread::get_id());
    if (found == lists_.end()) return;
    list = &found->second;
  }
  list->works.push_back(work);
  if (list->works.size() < list->clean_at) return;
  std::erase_if(list->works, [](const WorkPointer& each) {
    if (!each->isCompleted() || !each->isSuccess()) return false;
    each->synchronize();  // The current stream waits for a device's results.
    return true;
  });
  list->clean_at = std::max(kCleanAt, 2 * list->works.size());
}

std::vector<CoalescedWorks::WorkPointer> CoalescedWorks::end() {
  const std::lock_guard lock(mutex_);
  auto ended = lists_.extract(std::this_thread::get_id());
  return ended.empty() ? std::vector<WorkPointer>() : std::move(ended.mapped().works);
}

}  // namespace gradwire
