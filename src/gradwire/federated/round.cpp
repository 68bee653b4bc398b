#include "gradwire/federated/round.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "gradwire/base/check.h"
#include "gradwire/base/clock.h"
#include "gradwire/base/random.h"
#include "gradwire/base/refuse.h"

namespace gradwire::federated {
namespace {

constexpr std::array<std::string_view, 11> kPhases{
    "selecting", "configuring", "collecting", "uploading", "keys",     "shares",
    "masked",    "agreeing",    "unmasking",  "committed", "abandoned"};

Phase phase_of(SecurePhase phase) {
  switch (phase) {
    case SecurePhase::keys:
      return Phase::keys;
    case SecurePhase::shares:
      return Phase::shares;
    case SecurePhase::masked:
      return Phase::masked;
    case SecurePhase::agreeing:
      return Phase::agreeing;
    case SecurePhase::unmasking:
      return Phase::unmasking;
    case SecurePhase::done:
      return Phase::committed;
    case SecurePhase::abandoned:
      break;
  }
  return Phase::abandoned;
}

}  // namespace

std::string_view name_of(Phase phase) {
  return kPhases[static_cast<std::size_t>(phase)];
}

void check(const RoundPolicy& policy) {
  if (policy.least < 1 || policy.use < policy.least || policy.ask < policy.use) {
    refuse(
        "a round asks {} clients, uses the first {} that are ready, and needs at least {}: these "
        "must be in descending order, and at least 1",
        policy.ask, policy.use, policy.least);
  }
  if (policy.pool != 0 && policy.pool < policy.least)
    refuse("clients are drawn of {} that check in: fewer than the {} a round needs", policy.pool,
           policy.least);
  if (policy.update_bits < 2 || policy.update_bits > 32)
    refuse("an update has 2 to 32 bits an element, not {}", policy.update_bits);
  if (!policy.secure) return;
  if (policy.selection == Selection::proportional) {
    refuse(
        "round.select \"proportional\" has no secure aggregation: a client that is drawn twice "
        "counts as two of round.use, so that a sum may have too few clients; select \"uniform\" or "
        "\"fair\"");
  }
  value_or_throw(check_among(policy.use, policy.secure->policy));
  if (policy.least < 2)
    refuse("a sum of one update shows it: with secure aggregation at least 2 clients must count");
}

std::size_t packed_bytes(const UpdateShape& shape, int bits) {
  return ModularVector::packed_bytes(shape.elements, bits) +
         ModularVector::packed_bytes(shape.metrics, 64);
}

int sum_bits(int update_bits, std::int64_t weights) {
  return update_bits + bits_for(static_cast<std::uint64_t>(weights - 1));
}

Round::Round(const RoundPolicy& policy, const UpdateShape& shape, std::int64_t number,
             std::uint64_t seed)
    : policy_(policy),
      shape_(shape),
      seed_(mixed_seed({seed, static_cast<std::uint64_t>(number)})) {
  check(policy);
  record_.number = number;
}

// --- selecting ---

Status Round::on_check_in(const Candidate& candidate, Time now) {
  if (candidate.samples < 1) {
    return failure(ErrorKind::invalid_argument,
                   fmt::format("client {} has no samples to train with", candidate.client));
  }
  if (phase_ != Phase::selecting) {
    order(candidate.client, Order::Again{});
    return {};
  }
  if (candidates_.empty()) {
    record_.began = now;
    deadline_ = after(now, policy_.gather);
  }
  candidates_.push_back(candidate);
  const auto pool = static_cast<std::size_t>(policy_.pool > 0 ? policy_.pool : policy_.ask);
  if (candidates_.size() >= pool) merge_candidates();
  if (candidates_.size() >= pool) select(now);
  return {};
}

/// Orders them by client. One that has called again may have more samples now.
void Round::merge_candidates() {
  std::ranges::stable_sort(candidates_, {}, &Candidate::client);
  const auto repeated = [](const Candidate& a, const Candidate& b) { return a.client == b.client; };
  const auto first = std::unique(candidates_.rbegin(), candidates_.rend(), repeated);
  candidates_.erase(candidates_.begin(), first.base());
}

void Round::select(Time now) {
  merge_candidates();
  record_.checked_in = static_cast<int>(candidates_.size());
  if (record_.checked_in < policy_.least) {
    return abandon(fmt::format("{} of at least {} clients checked in within {:.0f} s",
                               record_.checked_in, policy_.least, seconds(policy_.gather)),
                   now);
  }
  for (const Drawn& drawn : draw(candidates_, policy_.ask, policy_.selection, seed_)) {
    participants_[drawn.client] = {.samples = drawn.samples, .times = drawn.times};
    places_[static_cast<std::size_t>(State::asked)] += drawn.times;
    order(drawn.client, Order::Train{policy_.window});
  }
  for (const Candidate& one : candidates_)
    if (!participants_.contains(one.client)) order(one.client, Order::Again{});
  record_.asked = static_cast<int>(participants_.size());
  phase_ = Phase::configuring;
  deadline_ = after(now, policy_.window);
}

// --- configuring and collecting ---

Result<Round::Participant*> Round::find(ClientId client, std::initializer_list<State> states,
                                        std::string_view what) {
  const auto found = participants_.find(client);
  if (ended() || found == participants_.end() ||
      std::ranges::find(states, found->second.state) == states.end()) {
    return failure(ErrorKind::refused,
                   fmt::format("round {} did not expect {} of client {} while {}", number(), what,
                               client, name_of(phase_)));
  }
  return &found->second;
}

void Round::set_state(Participant& participant, State state) {
  places_[static_cast<std::size_t>(participant.state)] -= participant.times;
  participant.state = state;
  places_[static_cast<std::size_t>(state)] += participant.times;
}

Status Round::on_configured(ClientId client, Time now) {
  GRADWIRE_ASSIGN_OR_RETURN(Participant * one, find(client, {State::asked}, "a start"));
  set_state(*one, State::configured);
  check_progress(now);
  return {};
}

Status Round::on_ready(ClientId client, Time now) {
  if (const auto late = participants_.find(client);
      late != participants_.end() && late->second.state == State::stopped) {
    order(client, Order::Stop{});  // It became ready while the order was on its way.
    return {};
  }
  GRADWIRE_ASSIGN_OR_RETURN(Participant * one,
                            find(client, {State::asked, State::configured}, "an end of training"));
  set_state(*one, State::ready);
  arrivals_.push_back(client);
  ++record_.ready;
  if (places(State::ready) >= policy_.use)
    form_cohort(now);
  else
    check_progress(now);
  return {};
}

void Round::add_to_cohort(Participant& participant) {
  const std::int64_t times = std::min(participant.times, policy_.use - places(State::member));
  set_state(participant, State::member);
  participant.weight = policy_.selection == Selection::proportional ? times : participant.samples;
}

void Round::stop(ClientId client, Participant& participant) {
  set_state(participant, State::stopped);
  ++record_.stopped;
  order(client, Order::Stop{});
}

void Round::form_cohort(Time now) {
  std::int64_t weights = 0;
  for (const ClientId client : arrivals_) {
    Participant& one = participants_[client];
    if (one.state != State::ready) continue;
    add_to_cohort(one);
    weights += one.weight;
  }
  const int bits = sum_bits(policy_.update_bits, weights);
  std::optional<SecurePolicy> secure;
  if (policy_.secure) secure = policy_.secure->policy;
  for (auto& [client, one] : participants_) {
    if (one.state == State::member) order(client, Order::Upload{bits, one.weight, secure});
    if (one.state == State::asked || one.state == State::configured) stop(client, one);
  }
  if (secure) return begin_secure(bits, now);
  sum_ = {ModularVector(shape_.elements, bits), ModularVector(shape_.metrics, 64)};
  phase_ = Phase::uploading;
  deadline_ = after(now, policy_.exchange);
}

// --- uploading ---

Status Round::on_update(ClientId client, const Contribution& contribution, Time now) {
  GRADWIRE_ASSIGN_OR_RETURN(Participant * one, find(client, {State::member}, "an update"));
  const auto is_same = [](const ModularVector& a, const ModularVector& b) {
    return a.size() == b.size() && a.bits() == b.bits();
  };
  if (!std::ranges::equal(contribution, sum_, is_same)) {
    return failure(
        ErrorKind::corrupted,
        fmt::format("client {} sent an update of another size in round {}", client, number()));
  }
  for (std::size_t i = 0; i < sum_.size(); ++i) sum_[i] += contribution[i];
  set_state(*one, State::counted);
  weight_ += one->weight;
  check_progress(now);
  return {};
}

void Round::close_uploads(Time now) {
  const std::int64_t used = places(State::counted);
  if (used < policy_.least) {
    return abandon(fmt::format("{} of at least {} updates arrived", used, policy_.least), now);
  }
  end(Phase::committed, now);
}

// --- secure aggregation ---

void Round::begin_secure(int bits, Time now) {
  std::vector<ClientId> cohort;
  for (const auto& [client, one] : participants_)
    if (one.state == State::member) cohort.push_back(client);
  const SecureRound& how = *policy_.secure;
  secure_.emplace(UnmaskingServerOptions{.round = number(),
                                         .policy = how.policy,
                                         .cohort = std::move(cohort),
                                         .shapes = {{shape_.elements, bits}, {shape_.metrics, 64}},
                                         .task = how.task,
                                         .least = policy_.least,
                                         .signing_keys = how.signing_keys,
                                         .threads = how.threads});
  phase_ = Phase::keys;
  deadline_ = after(now, policy_.exchange);
}

Status Round::on_secure(ClientId client, const SecureAnswer& answer, Time now) {
  GRADWIRE_RETURN_IF_ERROR(find(client, {State::member}, "a message of secure aggregation"));
  if (!secure_) {
    return failure(ErrorKind::refused,
                   fmt::format("round {} has no secure aggregation now", number()));
  }
  struct {
    UnmaskingServer& server;
    ClientId client;
    Status operator()(const KeyAdvert& one) const { return server.on_advert(client, one); }
    Status operator()(const SealedShares& one) const { return server.on_shares(client, one); }
    Status operator()(const MaskedInput& one) const { return server.on_masked(client, one); }
    Status operator()(const AliveSignature& one) const { return server.on_signature(client, one); }
    Status operator()(const UnmaskingShares& one) const { return server.on_unmasking(client, one); }
  } const handle{*secure_, client};
  GRADWIRE_RETURN_IF_ERROR(std::visit(handle, answer));
  advance_secure(now);
  return {};
}

/// Closes phases until one awaits a client that is not lost.
void Round::advance_secure(Time now) {
  const auto is_there = [&](ClientId client) {
    return participants_.at(client).state == State::member;
  };
  while (!ended() && std::ranges::none_of(secure_->awaited(), is_there)) close_secure_phase(now);
}

void Round::close_secure_phase(Time now) {
  if (const Status closed = secure_->close_phase(); !closed)
    return abandon(closed.error().message, now);
  if (secure_->phase() == SecurePhase::done) return commit_secure(now);
  phase_ = phase_of(secure_->phase());
  deadline_ = after(now, policy_.exchange);
  order_secure_phase();
}

void Round::order_secure_phase() {
  const std::set<ClientId>& awaited = secure_->awaited();
  for (auto& [client, one] : participants_) {
    if (one.state != State::member) continue;
    if (!awaited.contains(client)) {  // It was too late, or has too few neighbours left.
      set_state(one, State::lost);
      order(client, Order::Stop{});
    } else if (phase_ == Phase::shares) {
      order(client, secure_->roster_for(client));
    } else if (phase_ == Phase::masked) {
      order(client, secure_->shares_for(client));
    } else if (phase_ == Phase::agreeing) {
      order(client, secure_->alive_list());
    } else {
      order(client, secure_->request_for(client));
    }
  }
}

void Round::commit_secure(Time now) {
  for (const ClientId client : secure_->counted()) {
    Participant& one = participants_.at(client);
    set_state(one, State::counted);
    weight_ += one.weight;
  }
  sum_ = secure_->sum();
  end(Phase::committed, now);
}

// --- all phases ---

void Round::on_lost(ClientId client, Time now) {
  if (phase_ == Phase::selecting) {
    std::erase_if(candidates_, [&](const Candidate& one) { return one.client == client; });
    return;
  }
  const auto found = participants_.find(client);
  if (ended() || found == participants_.end()) return;
  const State state = found->second.state;
  if (state == State::counted || state == State::stopped) return;
  set_state(found->second, State::lost);
  check_progress(now);
}

void Round::on_time(Time now) {
  if (now < deadline_) return;
  if (phase_ == Phase::selecting) return select(now);
  if (phase_ == Phase::uploading) return close_uploads(now);
  if (ended()) return;
  if (secure_) {
    close_secure_phase(now);
    return advance_secure(now);
  }
  if (places(State::ready) >= policy_.least) return form_cohort(now);
  abandon(fmt::format("{} of at least {} clients were ready within {:.0f} s", places(State::ready),
                      policy_.least, seconds(policy_.window)),
          now);
}

/// Ends the phase as soon as nothing more can come, or too little.
void Round::check_progress(Time now) {
  if (secure_) return advance_secure(now);
  if (phase_ == Phase::uploading) {
    const std::int64_t awaited = places(State::member);
    if (awaited == 0 || awaited + places(State::counted) < policy_.least) close_uploads(now);
    return;
  }
  if (places(State::asked) == 0) phase_ = Phase::collecting;
  const std::int64_t left = still_training() + places(State::ready);
  if (left < policy_.least) {
    abandon(fmt::format("{} of at least {} clients are left", left, policy_.least), now);
  } else if (still_training() == 0) {
    form_cohort(now);
  }
}

void Round::abandon(std::string reason, Time now) {
  for (auto& [client, one] : participants_) {
    const bool is_at_work = one.state == State::asked || one.state == State::configured ||
                            one.state == State::ready || one.state == State::member;
    if (!is_at_work) continue;
    stop(client, one);
  }
  if (phase_ == Phase::selecting)
    for (const Candidate& one : candidates_) order(one.client, Order::Again{});
  record_.is_abandoned = true;
  record_.reason = std::move(reason);
  sum_.clear();
  secure_.reset();
  end(Phase::abandoned, now);
}

void Round::end(Phase phase, Time now) {
  phase_ = phase;
  deadline_ = Time::max();
  record_.ended = now;
  if (phase == Phase::committed) record_.used = static_cast<int>(counted().size());
  record_.dropped = record_.asked - record_.used - record_.stopped;
}

std::vector<ClientId> Round::counted() const {
  std::vector<ClientId> clients;
  for (const auto& [client, one] : participants_)
    if (one.state == State::counted) clients.push_back(client);
  return clients;
}

std::vector<Order> Round::take_orders() {
  return std::exchange(orders_, {});
}

}  // namespace gradwire::federated
