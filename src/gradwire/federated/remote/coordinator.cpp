#include "gradwire/federated/remote/coordinator.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "gradwire/base/check.h"
#include "gradwire/base/clock.h"
#include "gradwire/base/log.h"
#include "gradwire/base/refuse.h"

namespace gradwire::federated {
namespace {

/// Clients come back so far apart that a server hears that many a second.
constexpr double kCallsPerSecond = 100;

}  // namespace

Coordinator::Coordinator(Options options, ServerModel& model,
                         std::function<std::string(ClientId)> name_of)
    : options_(std::move(options)),
      model_(model),
      name_of_(std::move(name_of)),
      ledger_(std::move(options_.ledger)),
      number_(options_.first_round - 1),
      random_(mixed_seed({options_.seed, 0x9ACE})) {
  const RoundPolicy& policy = options_.policy;
  check(policy);
  const int bits = sum_bits(policy.update_bits, policy.use * options_.max_samples);
  if (policy.selection != Selection::proportional && bits > 64) {
    refuse(
        "{} updates of {} bits from clients with up to {} samples have sums of {} bits; at most "
        "64 are possible: allow fewer samples or bits",
        policy.use, policy.update_bits, options_.max_samples, bits);
  }
}

void Coordinator::begin_round(Time now) {
  if (round_) last_duration_ = now - began_;
  ++number_;
  work_ = model_.begin(number_);
  round_.emplace(options_.policy, work_.shape, number_, options_.seed);
  began_ = now;
  // Those that wait have checked in to the last round, or while it was ending.
  for (const auto& [id, client] : clients_) answerable_.push_back(id);
}

// --- questions ---

std::optional<Answer> Coordinator::reply(ClientId id, std::uint64_t instance, std::int64_t round,
                                         const Question& question, Time now) {
  Client& client = clients_[id];
  if (client.instance != instance && now < client.until) {
    const Error error{ErrorKind::refused,
                      "another process uses this identity; enrol each process for itself, or wait "
                      "until the other one is forgotten"};
    note(id, error);
    return ComeBack{seconds(client.until - now), error.message};
  }
  client.instance = instance;
  Reply reply =
      std::visit([&](const auto& one) { return reply_to(id, round, one, now); }, question);
  client.until = expected_after(reply, now);
  return reply;
}

Time Coordinator::expected_after(const Reply& reply, Time now) const {
  if (!reply || std::holds_alternative<Refusal>(*reply))
    return after(now, options_.expected_within);
  const auto back = [&](double pause) {
    return after(after(now, duration_of(pause)), options_.expected_within);
  };
  if (const auto* told = std::get_if<ComeBack>(&*reply)) return back(told->seconds);
  if (const auto* told = std::get_if<Done>(&*reply)) return back(told->seconds);
  if (const auto* told = std::get_if<NotNeeded>(&*reply)) return back(told->seconds);
  if (std::holds_alternative<Over>(*reply)) return now;
  return round_->deadline();
}

Coordinator::Reply Coordinator::reply_to(ClientId id, std::int64_t, const CheckIn& question,
                                         Time now) {
  Client& client = clients_[id];
  if (is_over_) return Over{};
  if (current() == nullptr) return std::nullopt;
  if (client.round != number_) return check_in(id, client, question, now);
  if (order_in<Order::Train>(client, number_) != nullptr && !client.is_ready) {
    client.version = question.version;
    return offer(client, now);
  }
  // It may have done something in this round, and begins anew.
  round_->on_lost(id, now);
  deliver(now);
  return come_back(now);
}

Coordinator::Reply Coordinator::check_in(ClientId id, Client& client, const CheckIn& question,
                                         Time now) {
  if (client.checked_in == number_) return std::nullopt;
  if (question.samples > options_.max_samples) {
    return refusal(
        id, {ErrorKind::invalid_argument, fmt::format("it has {} samples, and may have {}",
                                                      question.samples, options_.max_samples)});
  }
  ClientRecord& record = ledger_[id];
  const bool is_in_time = round_->phase() == Phase::selecting;
  const Status done = round_->on_check_in({id, question.samples, record.counted}, now);
  if (!done) return refusal(id, done.error());
  client.checked_in = number_;
  client.version = question.version;
  record.samples = client.samples = question.samples;
  if (is_in_time) ++record.eligible;
  deliver(now);
  return client.round == number_ ? reply_to(id, number_, question, now) : std::nullopt;
}

Coordinator::Reply Coordinator::reply_to(ClientId id, std::int64_t round, const Fetch&, Time now) {
  const Client& client = clients_[id];
  if (order_in<Order::Train>(client, round) == nullptr || client.is_ready)
    return NotNeeded{pause(now)};
  return task(client, now);
}

Coordinator::Reply Coordinator::reply_to(ClientId id, std::int64_t round, const Ready& question,
                                         Time now) {
  Client& client = clients_[id];
  if (order_in<Order::Train>(client, round) != nullptr && !client.is_ready) {
    const Status done = round_->on_ready(id, now);
    if (!done) return refusal(id, done.error());
    client.is_ready = true;
    ledger_[id].compute_seconds +=
        std::min(question.compute_seconds, seconds(now - client.order_at));
    deliver(now);
  }
  if (order_in<Order::Train>(client, round) != nullptr) return std::nullopt;
  if (const auto* upload = order_in<Order::Upload>(client, round))
    return UploadOrder{upload->bits, upload->weight};
  return NotNeeded{pause(now)};
}

Coordinator::Reply Coordinator::reply_to(ClientId id, std::int64_t round, const Update& question,
                                         Time now) {
  Client& client = clients_[id];
  if (client.uploaded == round) return Done{pause(now)};
  const auto* upload = order_in<Order::Upload>(client, round);
  if (upload == nullptr) {
    return refusal(id, {ErrorKind::refused,
                        fmt::format("round {} does not await its update: it is over, or did not "
                                    "ask for one; round {} is in progress",
                                    round, number_)});
  }
  const auto contribution = contribution_in(question, work_.shape, upload->bits);
  if (!contribution) return refusal(id, contribution.error());
  const Status done = round_->on_update(id, *contribution, now);
  if (!done) return refusal(id, done.error());
  client.uploaded = round;
  deliver(now);
  return Done{pause(now)};
}

Coordinator::Reply Coordinator::reply_to(ClientId id, std::int64_t round, const Leave& question,
                                         Time now) {
  if (current() != nullptr && round == number_) {
    note(id, {ErrorKind::aborted, "it leaves: " + question.reason});
    on_gone(id, now);
    round_->on_lost(id, now);
    deliver(now);
  }
  return Done{pause(now)};
}

// --- answers ---

Offer Coordinator::offer(const Client& client, Time now) {
  const ServerModel::Demand demand = model_.demand(client.samples);
  const RoundPolicy& policy = options_.policy;
  const std::int64_t each = policy.selection == Selection::proportional ? 1 : client.samples;
  const int bits = std::min(64, sum_bits(policy.update_bits, policy.use * each));
  const auto down = work_.plan.size() + model_.bytes_for(client.version).model.size;
  return {.version = work_.version,
          .seconds = seconds(std::max(Duration{}, round_->deadline() - now)),
          .memory_bytes = demand.memory_bytes,
          .steps = demand.steps,
          .down_bytes = static_cast<std::int64_t>(down),
          .up_bytes = static_cast<std::int64_t>(update_bytes(work_.shape, bits))};
}

Task Coordinator::task(const Client& client, Time now) {
  ServerModel::Bytes bytes = model_.bytes_for(client.version);
  return {.version = work_.version,
          .base_version = bytes.base_version,
          .seconds = seconds(std::max(Duration{}, round_->deadline() - now)),
          .plan = work_.plan,
          .model = std::move(bytes.model)};
}

ComeBack Coordinator::come_back(Time now) {
  return {pause(now), fmt::format("round {} is in progress", number_)};
}

/// Seconds until the next round, as the last one lasted; spread, so that not all call at once
/// (pace steering: Bonawitz et al., MLSys 2019, section 2.3).
double Coordinator::pause(Time now) {
  double wait = seconds(options_.least_pause);
  const bool is_training = current() != nullptr && (round_->phase() == Phase::configuring ||
                                                    round_->phase() == Phase::collecting);
  if (is_training) {
    const Time latest = round_->deadline();
    const Time end = last_duration_ ? std::min(latest, after(began_, *last_duration_)) : latest;
    wait = std::max(wait, seconds(end - now));
  }
  return wait + random_.unit() * static_cast<double>(clients_.size()) / kCallsPerSecond;
}

Refusal Coordinator::refusal(ClientId id, const Error& error) {
  note(id, error);
  return Refusal::of(error);
}

void Coordinator::note(ClientId id, const Error& error) {
  if (!noted_.emplace(id, error.kind).second) return;
  log_warning("client {} ({}): {} (said once)", id, name_of_(id), error.message);
}

// --- the round ---

void Coordinator::deliver(Time now) {
  for (Order& order : round_->take_orders()) {
    Client& client = clients_[order.client];
    if (std::holds_alternative<Order::Train>(order.what)) {
      client.is_ready = false;
      client.order_at = now;
      ++ledger_[order.client].asked;
    }
    client.round = number_;
    client.order = std::move(order.what);
    answerable_.push_back(order.client);
  }
}

void Coordinator::on_task_sent(ClientId id, Time now) {
  if (order_in<Order::Train>(clients_[id], number_) == nullptr) return;
  (void)round_->on_configured(id, now);  // Refused if it was sent again.
  deliver(now);
}

void Coordinator::on_gone(ClientId id, Time now) {
  Client& client = clients_[id];
  // One that has an order may connect again, as long as its phase lasts.
  const bool is_drawn = client.round == number_;
  if (current() == nullptr || is_drawn || client.checked_in != number_) return;
  round_->on_lost(id, now);
  client.checked_in = -1;
  --ledger_[id].eligible;
}

void Coordinator::on_time(Time now) {
  if (current() == nullptr) return;
  round_->on_time(now);
  deliver(now);
}

void Coordinator::add_bytes(ClientId id, std::uint64_t up, std::uint64_t down) {
  ClientRecord& record = ledger_[id];
  record.up_bytes += static_cast<double>(up);
  record.down_bytes += static_cast<double>(down);
}

std::size_t Coordinator::limit_of(ClientId id, const MessageHeader& header) {
  if (!is_question<Update>(header)) return kMaxQuestionBytes;
  const Client& client = clients_[id];
  const auto* upload = order_in<Order::Upload>(client, header.round);
  if (upload == nullptr || client.uploaded == header.round) return 0;
  return update_bytes(work_.shape, upload->bits);
}

EndedRound Coordinator::ended() {
  GRADWIRE_CHECK(has_ended());
  const bool is_committed = round_->phase() == Phase::committed;
  EndedRound round{.record = round_->record()};
  if (is_committed) {
    round.sum = &round_->sum();
    round.weight = round_->weight();
    round.counted = round_->counted();
  }
  for (const ClientId id : round.counted) ++ledger_[id].counted;
  round.ledger = ledger_;
  return round;
}

Time Coordinator::expected_until() const {
  Time latest{};
  for (const auto& [id, client] : clients_) latest = std::max(latest, client.until);
  return latest;
}

}  // namespace gradwire::federated
