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

/// Most neighbours of a client: the graph's are an even number.
std::size_t most_neighbours(const RoundPolicy& policy) {
  return static_cast<std::size_t>(std::min(policy.secure->policy.neighbours + 1, policy.use));
}

/// Bytes of secure aggregation beside the masked update, at most.
struct SecureBytes {
  std::size_t longest = 0;  ///< The longest message of a client.
  std::size_t up = 0, down = 0;
};
SecureBytes secure_bytes(const RoundPolicy& policy) {
  const std::size_t neighbours = most_neighbours(policy);
  const auto cohort = static_cast<std::size_t>(policy.use);
  const bool active = policy.secure->policy.active;
  std::size_t each = sizeof(Roster::Neighbour) + sizeof(ForwardedShares::From) + sizeof(ClientId);
  if (active) each += kCertificateBytes + sizeof(UnmaskRequest::Signed);
  return {.longest = longest_secure_message(neighbours),
          .up = secure_up_bytes(neighbours),
          .down = 4 * longest_secure_message(0) + neighbours * each +
                  cohort * (sizeof(Roster::Member) + (active ? sizeof(ClientId) : 0))};
}

}  // namespace

Coordinator::Coordinator(Options options, ServerModel& model,
                         std::function<std::string(ClientId)> name_of)
    : options_(std::move(options)),
      model_(model),
      description_{model.description()},
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
  if (!policy.secure) return;
  if (const SecureBytes bytes = secure_bytes(policy);
      bytes.longest > kMaxQuestionBytes || bytes.down > kMaxAnswerBytes) {
    refuse(
        "{} clients with {} neighbours each exchange messages of more than {} bytes: use fewer "
        "neighbours (find_policy() says how many suffice)",
        policy.use, policy.secure->policy.neighbours, kMaxQuestionBytes);
  }
}

void Coordinator::begin_round(Time now) {
  if (round_) last_duration_ = now - began_;
  ++number_;
  work_ = model_.begin(number_);
  if (work_.update_bits > 0) options_.policy.update_bits = work_.update_bits;
  if (auto& secure = options_.policy.secure)
    secure->task = digest_of_task(work_.version, work_.plan);
  round_.emplace(options_.policy, work_.shape, number_, options_.seed);
  began_ = now;
  // Those that wait have checked in to the last round, or while it was ending.
  for (auto& [id, client] : clients_) {
    client.order.reset();
    answerable_.push_back(id);
  }
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
  if (std::holds_alternative<Over>(*reply) || std::holds_alternative<Description>(*reply))
    return now;
  const Time deadline = round_->deadline();
  return deadline == Time::max() ? after(now, options_.expected_within) : deadline;
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
  if (const auto* upload = order_in<Order::Upload>(client, round)) return UploadOrder::of(*upload);
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
  if (upload->secure) {
    return refusal(id, {ErrorKind::refused,
                        fmt::format("round {} takes masked updates, and not one that the server "
                                    "can read",
                                    round)});
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
    note(id, {ErrorKind::aborted,
              fmt::format("it leaves: {}", text_of(static_cast<LeaveReason>(question.reason)))});
    on_gone(id, now);
    round_->on_lost(id, now);
    Client& client = clients_[id];
    if (client.round == round) client.order = Order::Stop{};  // It is not asked again.
    deliver(now);
  }
  return Done{pause(now)};
}

// --- secure aggregation ---

namespace {

template <class Kind>
Result<SecureAnswer> decoded_as(ConstBytes bytes) {
  GRADWIRE_ASSIGN_OR_RETURN(auto message, decode<Kind>(bytes));
  return SecureAnswer(std::move(message));
}

Result<SecureAnswer> decode_secure(std::uint8_t kind, ConstBytes bytes) {
  if (kind == KeyAdvert::kKind) return decoded_as<KeyAdvert>(bytes);
  if (kind == SealedShares::kKind) return decoded_as<SealedShares>(bytes);
  if (kind == AliveSignature::kKind) return decoded_as<AliveSignature>(bytes);
  return decoded_as<UnmaskingShares>(bytes);
}

}  // namespace

Coordinator::Reply Coordinator::reply_to(ClientId id, std::int64_t round,
                                         const SecureMessage& question, Time now) {
  const ConstBytes bytes = question.message.bytes();
  const auto kind = bytes.empty() ? std::uint8_t{0} : static_cast<std::uint8_t>(bytes.front());
  const bool is_known = kind == KeyAdvert::kKind || kind == SealedShares::kKind ||
                        kind == AliveSignature::kKind || kind == UnmaskingShares::kKind;
  if (!is_known)
    return refusal(id, {ErrorKind::corrupted, "it sent no message of secure aggregation"});
  return secure_reply(
      id, round, kind, [&] { return decode_secure(kind, bytes); }, now);
}

Coordinator::Reply Coordinator::reply_to(ClientId id, std::int64_t round,
                                         const MaskedUpdate& question, Time now) {
  const auto decode = [&]() -> Result<SecureAnswer> {
    const auto* ordered = order_in<ForwardedShares>(clients_[id], round);
    if (ordered == nullptr) {
      return failure(ErrorKind::refused,
                     fmt::format("round {} does not await its masked update", round));
    }
    const auto shapes = segments_of(work_.shape, clients_[id].bits);
    GRADWIRE_ASSIGN_OR_RETURN(auto input, decode_masked(question.message.bytes(), shapes));
    return SecureAnswer(std::move(input));
  };
  return secure_reply(id, round, MaskedInput::kKind, decode, now);
}

Coordinator::Reply Coordinator::secure_reply(ClientId id, std::int64_t round, std::uint8_t kind,
                                             const std::function<Result<SecureAnswer>()>& decode,
                                             Time now) {
  Client& client = clients_[id];
  if (client.uploaded == round) return Done{pause(now)};
  const bool is_current = current() != nullptr && round == number_ && client.round == number_;
  if (!is_current || order_in<Order::Stop>(client, round) != nullptr) return NotNeeded{pause(now)};
  if (client.sent < kind) {
    const auto answer = decode();
    if (!answer) return refusal(id, answer.error());
    const Status done = round_->on_secure(id, *answer, now);
    if (!done) return refusal(id, done.error());
    client.sent = kind;
    deliver(now);
    if (round_->phase() == Phase::abandoned) return NotNeeded{pause(now)};
    if (kind == UnmaskingShares::kKind) {
      client.uploaded = round;
      return Done{pause(now)};
    }
  }
  if (order_in<Order::Stop>(client, round) != nullptr) return NotNeeded{pause(now)};
  return secure_order(client, kind);
}

/// The order that answers a message of this kind, if it has come.
Coordinator::Reply Coordinator::secure_order(const Client& client, std::uint8_t kind) const {
  const auto encoded = [&]<class Kind>(const Kind& order) -> Reply {
    if constexpr (requires { Kind::kKind; }) {
      if (Kind::kKind < kind) return std::nullopt;
      SecureOrder answer{.certificates = {}, .message = Blob::of(encode(order))};
      if constexpr (std::is_same_v<Kind, Roster>) answer.certificates = certificates_of(order);
      return answer;
    } else {
      return std::nullopt;
    }
  };
  return std::visit(encoded, *client.order);
}

std::string Coordinator::certificates_of(const Roster& roster) const {
  std::string packed;
  if (!options_.policy.secure->policy.active) return packed;
  for (const Roster::Neighbour& neighbour : roster.neighbours)
    append(packed, options_.certificates(neighbour.client).value_or(Certificate{}));
  return packed;
}

Coordinator::Reply Coordinator::reply_to(ClientId, std::int64_t, const Describe&, Time) {
  return description_;
}

// --- answers ---

Offer Coordinator::offer(const Client& client, Time now) {
  const ServerModel::Demand demand = model_.demand(client.samples);
  const RoundPolicy& policy = options_.policy;
  const std::int64_t each = policy.selection == Selection::proportional ? 1 : client.samples;
  const int bits = std::min(64, sum_bits(policy.update_bits, policy.use * each));
  SecureBytes extra;
  if (policy.secure) extra = secure_bytes(policy);
  const auto down = work_.plan.size() + model_.bytes_for(client.version).model.size + extra.down;
  return {.version = work_.version,
          .seconds = training_seconds(now),
          .memory_bytes = demand.memory_bytes,
          .steps = demand.steps,
          .down_bytes = static_cast<std::int64_t>(down),
          .up_bytes = static_cast<std::int64_t>(update_bytes(work_.shape, bits) + extra.up)};
}

Task Coordinator::task(const Client& client, Time now) {
  ServerModel::Bytes bytes = model_.bytes_for(client.version);
  return {.version = work_.version,
          .base_version = bytes.base_version,
          .seconds = training_seconds(now),
          .plan = work_.plan,
          .model = std::move(bytes.model)};
}

/// Until shortly before the end of the window: a client that trains for so long still has to
/// connect and to say that it is ready.
double Coordinator::training_seconds(Time now) const {
  constexpr Duration kLongestWay = std::chrono::seconds(5);
  const Duration way = std::min(kLongestWay, options_.policy.window / 20);
  return seconds(std::max(Duration{}, round_->deadline() - way - now));
}

ComeBack Coordinator::come_back(Time now) {
  return {pause(now), "a round is in progress"};
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
      client.sent = 0;
      client.order_at = now;
      ++ledger_[order.client].asked;
    }
    if (const auto* upload = std::get_if<Order::Upload>(&order.what)) client.bits = upload->bits;
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
  const RoundPolicy& policy = options_.policy;
  if (is_question<SecureMessage>(header) && policy.secure) return secure_bytes(policy).longest;
  if (!is_upload(header)) return kMaxQuestionBytes;
  const Client& client = clients_[id];
  if (is_question<MaskedUpdate>(header)) {
    const bool is_awaited = order_in<ForwardedShares>(client, header.round) != nullptr &&
                            client.sent < MaskedInput::kKind;
    return is_awaited ? masked_bytes(work_.shape, client.bits) : 0;
  }
  const auto* upload = order_in<Order::Upload>(client, header.round);
  if (upload == nullptr || upload->secure || client.uploaded == header.round) return 0;
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

void Coordinator::finish(Time now) {
  is_over_ = true;
  over_until_ = after(now, options_.expected_within);
}

Time Coordinator::expected_until() const {
  Time latest{};
  for (const auto& [id, client] : clients_) latest = std::max(latest, client.until);
  return std::min(latest, over_until_);
}

std::int64_t Coordinator::expected_clients(Time now) const {
  return std::ranges::count_if(clients_, [&](const auto& one) { return one.second.until > now; });
}

}  // namespace gradwire::federated
