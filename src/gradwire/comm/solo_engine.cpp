#include "gradwire/comm/solo_engine.h"

#include <utility>

namespace gradwire {

class SoloEngine::NoTransport final : public Transport {
 public:
  Result<std::size_t> write(Rank, std::span<const ConstBytes>) override { return nobody(); }
  Result<std::size_t> read(Rank, std::span<const Bytes>) override { return nobody(); }
  void close(Rank) override {}
  std::string describe(Rank) const override { return "nobody"; }

 private:
  static Result<std::size_t> nobody() {
    return failure(ErrorKind::disconnected, "a world of one has no peers");
  }
};

SoloEngine::SoloEngine(const ExecutorOptions& options, const Clock& clock)
    : clock_(clock),
      transport_(std::make_unique<NoTransport>()),
      executor_(0, 1, options, *transport_, clock.now()) {}

SoloEngine::~SoloEngine() = default;

void SoloEngine::post(OperationRequest request) {
  const std::lock_guard lock(mutex_);
  executor_.post(std::move(request), clock_.now());
}

void SoloEngine::abort(Error error) {
  const std::lock_guard lock(mutex_);
  executor_.abort(std::move(error));
}

}  // namespace gradwire
