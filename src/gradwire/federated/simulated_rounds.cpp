#include "gradwire/federated/simulated_rounds.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "gradwire/base/check.h"
#include "gradwire/base/refuse.h"

namespace gradwire::federated {

SimulatedRounds::SimulatedRounds(RoundPolicy policy, SimulatedClients clients, SimulatedWork work,
                                 std::uint64_t seed)
    : policy_(std::move(policy)),
      clients_(std::move(clients)),
      work_(std::move(work)),
      seed_(seed),
      records_(static_cast<std::size_t>(clients_.size())) {
  policy_.pool = std::numeric_limits<int>::max();
  policy_.gather = Duration{};
  if (policy_.secure) policy_.secure->signing_keys = simulated_enrolled_key;
  check(policy_);
  if (policy_.secure)
    value_or_throw(check_among(std::min(policy_.use, clients_.size()), policy_.secure->policy));
  if (clients_.has_stragglers() && work_.epochs < 2) {
    refuse(
        "devices.stragglers does nothing with local.epochs 1, of which no part is left out: leave "
        "it out, or do more epochs");
  }
  for (ClientId client = 0; client < clients_.size(); ++client)
    records_[static_cast<std::size_t>(client)].samples = clients_.samples(client);
}

void SimulatedRounds::resume(std::int64_t next_number, Time now,
                             std::vector<ClientRecord> records) {
  GRADWIRE_CHECK(records.size() == records_.size());
  number_ = next_number;
  now_ = now;
  records_ = std::move(records);
}

double SimulatedRounds::sum_of(double ClientRecord::*bytes) const {
  double sum = 0;
  for (const ClientRecord& one : records_) sum += one.*bytes;
  return sum;
}

const Round& SimulatedRounds::next(UpdateSource& updates, const UpdateShape& shape,
                                   int update_bits) {
  policy_.update_bits = update_bits;
  round_.emplace(policy_, shape, number_++, seed_);
  const double up = sum_of(&ClientRecord::up_bytes), down = sum_of(&ClientRecord::down_bytes);
  simulate_round(*round_, clients_, work_, updates, records_, now_);
  up_bytes_ = sum_of(&ClientRecord::up_bytes) - up;
  down_bytes_ = sum_of(&ClientRecord::down_bytes) - down;
  now_ = round_->record().ended;
  return *round_;
}

}  // namespace gradwire::federated
