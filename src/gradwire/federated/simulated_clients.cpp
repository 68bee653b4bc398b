#include "gradwire/federated/simulated_clients.h"

#include <algorithm>
#include <numeric>
#include <string_view>
#include <utility>

#include "gradwire/base/clock.h"
#include "gradwire/base/random.h"
#include "gradwire/base/refuse.h"

namespace gradwire::federated {
namespace {

constexpr std::uint64_t kChecksIn = 1, kFate = 2;

void check_share(std::string_view name, double share) {
  if (!(share >= 0 && share <= 1))
    refuse("devices: {} is a share of the clients, from 0 to 1, not {}", name, share);
}

Duration transfer(double bytes, double rate) {
  return bytes > 0 ? duration_of(bytes / rate) : Duration{};
}

}  // namespace

void check(const DeviceModel& model) {
  check_share("eligible", model.eligible);
  check_share("drop", model.drop);
  check_share("stragglers", model.stragglers);
  for (const LogNormal& one : {model.compute, model.up, model.down})
    if (!(one.median > 0 && one.sigma >= 0))
      refuse("devices: times and rates have a median above 0 and a spread of at least 0");
}

SimulatedClients::SimulatedClients(const DeviceModel& model, std::vector<std::int64_t> samples,
                                   std::uint64_t seed)
    : model_(model), samples_(std::move(samples)), seed_(seed) {
  check(model);
  const double all = std::accumulate(samples_.begin(), samples_.end(), 0.0);
  const double mean = std::max(1.0, all / std::max<double>(1, size()));
  speeds_.reserve(samples_.size());
  for (ClientId client = 0; client < size(); ++client) {
    Random random(mixed_seed({seed, static_cast<std::uint64_t>(client)}));
    const double work = static_cast<double>(samples_[index(client)]) / mean;
    speeds_.push_back({static_cast<float>(model.compute.draw(random) * work),
                       static_cast<float>(model.up.draw(random)),
                       static_cast<float>(model.down.draw(random))});
  }
}

Duration SimulatedClients::compute_time(ClientId client) const {
  return duration_of(speeds_[index(client)].compute);
}

Duration SimulatedClients::up_time(ClientId client, double bytes) const {
  return transfer(bytes, speeds_[index(client)].up);
}

Duration SimulatedClients::down_time(ClientId client, double bytes) const {
  return transfer(bytes, speeds_[index(client)].down);
}

bool SimulatedClients::checks_in(ClientId client, std::int64_t round) const {
  if (model_.eligible == 1) return true;
  const auto a = static_cast<std::uint64_t>(client), b = static_cast<std::uint64_t>(round);
  return Random(mixed_seed({seed_, kChecksIn, b, a})).unit() < model_.eligible;
}

Fate SimulatedClients::fate(ClientId client, std::int64_t round, int epochs) const {
  const auto a = static_cast<std::uint64_t>(client), b = static_cast<std::uint64_t>(round);
  Random random(mixed_seed({seed_, kFate, b, a}));
  Fate fate;
  if (random.unit() < model_.drop) fate.vanishes = 2 * random.unit();
  if (random.unit() < model_.stragglers)
    fate.epochs = static_cast<int>(random.between(1, std::max(1, epochs - 1)));
  return fate;
}

}  // namespace gradwire::federated
