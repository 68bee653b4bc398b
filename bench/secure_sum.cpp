// A round of secure aggregation in memory, for docs/federated.md: the CPU time of one client's
// masks, and the server's time to take masks off the sum when a third of the clients has vanished:
// on one thread, and on all cores.
#include <chrono>
#include <ctime>
#include <functional>

#include <fmt/format.h>

#include "gradwire/base/cpu.h"
#include "tests/federated/secure_trial.h"

namespace {

using gradwire::value_or_throw;
using gradwire::federated::ClientId;
using gradwire::federated::SecurePhase;

constexpr int kClients = 100, kGone = kClients / 3;
constexpr std::size_t kElements = 1'000'000;

double milliseconds_of_cpu() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return 1e3 * static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_nsec);
}

/// Returns the seconds of an action of the server's.
double seconds_of(const std::function<void()>& action) {
  const auto began = std::chrono::steady_clock::now();
  action();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

/// Returns true if the sum is right.
bool measure(int threads) {
  gradwire::test::SecureTrialOptions options;
  options.clients = kClients;
  options.policy = {.neighbours = kClients - 1, .threshold = kClients / 2};
  options.shapes = {{kElements, 16}, {10, 64}};
  options.threads = threads;
  gradwire::test::SecureTrial trial(options);
  auto& server = trial.server;
  value_or_throw(trial.run_until(SecurePhase::masked));

  double client_ms = 0, server_s = 0;
  for (int number = kGone; number < kClients; ++number) {
    const ClientId id = trial.id(number);
    value_or_throw(trial.client(number).on_shares(server.shares_for(id)));
    const double began = milliseconds_of_cpu();
    const auto input = trial.client(number).mask(trial.inputs.at(id)).value();
    client_ms += (milliseconds_of_cpu() - began) / (kClients - kGone);
    server_s += seconds_of([&] { value_or_throw(server.on_masked(id, input)); });
  }
  server_s += seconds_of([&] { value_or_throw(server.close_phase()); });
  for (int number = kGone; number < kClients; ++number) {
    const ClientId id = trial.id(number);
    const auto shares = trial.client(number).on_unmask_request(server.request_for(id)).value();
    server_s += seconds_of([&] { value_or_throw(server.on_unmasking(id, shares)); });
  }
  server_s += seconds_of([&] { value_or_throw(server.close_phase()); });
  const bool is_right = server.phase() == SecurePhase::done && server.sum() == trial.plain_sum();
  fmt::print(
      "{} clients, {} elements of 16 bits, {} gone: client {:.1f} ms of CPU, server {:.2f} s "
      "with {} threads; the sum is {}\n",
      kClients, kElements, kGone, client_ms, server_s, threads, is_right ? "right" : "WRONG");
  return is_right;
}

}  // namespace

int main() {
  const bool is_right = measure(1) && measure(gradwire::usable_cores());
  return is_right ? 0 : 1;
}
