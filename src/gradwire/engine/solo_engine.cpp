#include "gradwire/engine/solo_engine.h"

#include <algorithm>
#include <utility>

namespace gradwire::engine {

class SoloEngine::NoTransport final : public net::Transport {
 public:
  int rails(Rank) const override { return 1; }
  Result<std::size_t> write(net::StreamId, std::span<const ConstBytes>) override {
    return nobody();
  }
  Result<std::size_t> read(net::StreamId, std::span<const Bytes>) override { return nobody(); }
  std::size_t delivered(net::StreamId) override { return 0; }
  void close(net::StreamId) override {}
  std::string describe(net::StreamId) const override { return "no peer"; }

 private:
  static Result<std::size_t> nobody() {
    return failure(ErrorKind::disconnected, "a job of 1 rank has no peers");
  }
};

SoloEngine::SoloEngine(const ExecutorOptions& options, std::shared_ptr<const Clock> clock)
    : clock_(std::move(clock)),
      transport_(std::make_unique<NoTransport>()),
      executor_(0, 1, options, *transport_, clock_->now()) {}

SoloEngine::~SoloEngine() = default;

template <class Action>
void SoloEngine::run(const Action& action) {
  Ended ended;
  {
    const std::lock_guard lock(mutex_);
    action();
    ended = take_ended();
  }
  if (ended.empty()) return;
  publish(ended);
  { const std::lock_guard lock(mutex_); }  // Not between a waiter's check and its sleep.
  waiters_.notify_all();
}

void SoloEngine::post(OperationRequest request) {
  run([&] { executor_.post(std::move(request), clock_->now()); });
}

void SoloEngine::post(std::vector<OperationRequest> requests) {
  run([&] { executor_.post(std::move(requests), clock_->now()); });
}

void SoloEngine::wait(const PostedWork& state, Time until) {
  while (!state.is_done() && clock_->now() < until) {
    {
      std::unique_lock lock(mutex_);
      if (state.is_done()) return;
      const Time timer = std::min(until, executor_.next_timer());
      waiters_.wait_until(lock, timer);
    }
    run([&] { executor_.on_timer(clock_->now()); });
  }
}

void SoloEngine::close(Close, const std::string&) {
  run([&] {
    executor_.send_goodbye(
        {ErrorKind::aborted, "the communicator was closed while the operation was in flight"});
  });
}

void SoloEngine::abort(Error error) {
  run([&] { executor_.abort(std::move(error)); });
}

}  // namespace gradwire::engine
