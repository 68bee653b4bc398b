#include "gradwire/plan/simulate/federated_rounds.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

namespace gradwire::plan {
namespace {

/// Returns the seconds from the request to a client until its update arrives.
double answer_time(const FederatedModel& model, Random& random) {
  double seconds = model.compute.draw(random);
  if (model.model_bytes > 0) seconds += model.model_bytes / model.down.draw(random);
  if (model.update_bytes > 0) seconds += model.update_bytes / model.up.draw(random);
  return seconds;
}

/// Moves a random choice of `count` clients to the front (Fisher and Yates).
void choose(std::vector<std::size_t>& clients, std::size_t count, Random& random) {
  for (std::size_t i = 0; i < count; ++i)
    std::swap(clients[i], clients[i + random.below(clients.size() - i)]);
}

double jain(const std::vector<double>& values) {
  double sum = 0, squares = 0;
  for (const double value : values) {
    sum += value;
    squares += value * value;
  }
  return squares > 0 ? sum * sum / (static_cast<double>(values.size()) * squares) : 1;
}

/// Returns the seconds in which the server's port transfers `bytes`.
double server_seconds(const FederatedModel& model, double bytes) {
  return model.server_rate > 0 ? bytes / model.server_rate : 0;
}

}  // namespace

FederatedRounds simulate_federated(const FederatedModel& model, int rounds, std::uint64_t seed) {
  Random random(seed);
  std::vector<double> times, counted(static_cast<std::size_t>(model.clients));
  for (int i = 0; i < model.clients; ++i) times.push_back(answer_time(model, random));
  std::vector<std::size_t> clients(times.size());
  std::iota(clients.begin(), clients.end(), 0);
  const auto asked = static_cast<std::size_t>(std::min(model.asked, model.clients));
  FederatedRounds all;
  for (int round = 0; round < rounds; ++round) {
    choose(clients, asked, random);
    std::vector<std::pair<double, std::size_t>> answers;
    for (std::size_t i = 0; i < asked; ++i) {
      // The server sends the model to clients one after the other.
      const double begin = server_seconds(model, model.model_bytes * static_cast<double>(i + 1));
      if (random.unit() >= model.dropout)
        answers.emplace_back(begin + times[clients[i]], clients[i]);
    }
    std::ranges::sort(answers);
    double end = 0, used = 0;
    for (const auto& [time, client] : answers) {
      const double received = std::max(time, end + server_seconds(model, model.update_bytes));
      if (used == model.used || received > model.window) break;
      end = received;
      ++used;
      ++counted[client];
    }
    const bool is_short = used < model.used;
    all.round += is_short ? model.window : end;
    all.used += used;
    all.short_rounds += is_short;
    all.server_bytes += model.model_bytes * static_cast<double>(asked) + model.update_bytes * used;
  }
  all.wasted_share = 1 - all.used / (static_cast<double>(asked) * rounds);
  for (double* mean : {&all.round, &all.used, &all.short_rounds, &all.server_bytes})
    *mean /= rounds;
  all.fairness = jain(counted);
  return all;
}

}  // namespace gradwire::plan
