#include "gradwire/comm/solo_engine.h"

#include <utility>

namespace gradwire {

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

SoloEngine::SoloEngine(const engine::ExecutorOptions& options, std::shared_ptr<const Clock> clock)
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
  publish(ended);
}

void SoloEngine::post(engine::OperationRequest request) {
  run([&] { executor_.post(std::move(request), clock_->now()); });
}

void SoloEngine::post(std::vector<engine::OperationRequest> requests) {
  run([&] { executor_.post(std::move(requests), clock_->now()); });
}

void SoloEngine::abort(Error error) {
  run([&] { executor_.abort(std::move(error)); });
}

}  // namespace gradwire
