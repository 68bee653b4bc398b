#include "gradwire/recipe/stop_request.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstring>
#include <utility>

#include <fmt/format.h>

namespace gradwire::recipe {
namespace {

constexpr std::array kSignals{SIGTERM, SIGUSR1};

std::atomic<int> received_signal = 0;
static_assert(std::atomic<int>::is_always_lock_free, "the handler of a signal may not lock");

void remember(int signal) {
  int none = 0;
  received_signal.compare_exchange_strong(none, signal);
}

}  // namespace

StopSignals::StopSignals() {
  received_signal = 0;
  for (const int signal : kSignals) {
    struct sigaction action {};
    action.sa_handler = remember;
    action.sa_flags = SA_RESTART;
    ::sigaction(signal, &action, nullptr);
  }
}

StopSignals::~StopSignals() {
  for (const int signal : kSignals) ::signal(signal, SIG_DFL);
}

int StopSignals::received() {
  return received_signal;
}

int StopAgreement::after_step() {
  if (++steps_ < until_) return 0;
  // Rank 0 says when the ranks ask again.
  std::vector<torch::Tensor> asked{torch::zeros({2}, torch::kInt64)};
  auto* values = asked[0].data_ptr<std::int64_t>();
  values[0] = received_();
  if (group_->getRank() == 0) values[1] = steps_until_next(clock_.now());
  if (group_->getSize() > 1) {
    c10d::AllreduceOptions largest;
    largest.reduceOp = c10d::ReduceOp::MAX;
    group_->allreduce(asked, largest)->wait();
  }
  steps_ = 0;
  until_ = values[1];
  return static_cast<int>(values[0]);
}

std::int64_t StopAgreement::steps_until_next(Time now) {
  constexpr double kSeconds = 1;
  const double passed = std::chrono::duration<double>(now - std::exchange(asked_, now)).count();
  const double steps = static_cast<double>(steps_) * kSeconds / std::max(passed, 1e-6);
  // The first steps are slow; a step may become slower.
  return static_cast<std::int64_t>(std::clamp(steps, 1.0, 2.0 * static_cast<double>(until_)));
}

Stopped::Stopped(int signal, std::int64_t steps, std::filesystem::path checkpoint, bool first)
    : signal_(signal),
      first_(first),
      text_(
          fmt::format("stopped by SIG{} after step {}: the checkpoint is in {}; --set resume=auto "
                      "goes on from there",
                      ::sigabbrev_np(signal), steps, checkpoint.string())) {}

}  // namespace gradwire::recipe
