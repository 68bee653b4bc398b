#include "gradwire/servers/server.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "gradwire/base/error.h"
#include "gradwire/engine/operations/reduction.h"
#include "gradwire/servers/scale.h"

namespace gradwire::servers {
namespace {

std::size_t bytes_of(const LentSpan& span) {
  return span.count * size_of(span.type);
}

}  // namespace

LentSpan take_mean(std::span<const LentSpan> gradients) {
  const LentSpan sum = gradients.front();
  auto* const bytes = static_cast<std::byte*>(sum.data);
  for (const LentSpan& other : gradients.subspan(1)) {
    const auto* const added = static_cast<const std::byte*>(other.data);
    engine::combine(bytes, bytes, added, sum.count, sum.type, ReduceOp::mean);
  }
  engine::finish_reduction(bytes, sum.count, sum.type, ReduceOp::mean,
                           static_cast<int>(gradients.size()));
  return sum;
}

/// A worker is lost while the server waits for it.
class Server::WorkerLost : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

Server::Server(std::shared_ptr<Communicator> pairs, ServedShards& shards,
               const ServerOptions& options, const Clock& clock)
    : pairs_(std::move(pairs)),
      shards_(shards),
      options_(options),
      clock_(clock),
      order_(options.keeps_order
                 ? std::make_unique<OrderRecorder>(options.placement.workers, shards.units())
                 : nullptr),
      core_(options.policy, shards.units(), *this, [this](const Applied& each) { log(each); }),
      events_(std::make_shared<EventQueue<Event>>()),
      workers_(static_cast<std::size_t>(options.placement.workers)),
      connected_(options.placement.workers),
      snapshots_(shards.units()),
      grace_ends_(shards.units(), Time::max()),
      samples_(shards.units()) {
  for (Worker& worker : workers_) {
    worker.arrives.resize(shards_.units());
    worker.announced.resize(shards_.units());
    worker.gradients.resize(shards_.units());
    worker.encoded.resize(shards_.units());
  }
}

void Server::run() {
  for (Rank worker = 0; worker < options_.placement.workers; ++worker) await_request(worker);
  while (connected_ > 0) {
    if (const auto event = events_->pop_until(next_grace_end(), clock_)) handle(*event);
    end_graces();
    send_answers();
  }
  if (!left_) throw Exception(ErrorKind::disconnected, "all workers are lost: " + lost_last_);
}

/// Returns when the first step that waits for more gradients stops waiting.
Time Server::next_grace_end() {
  if (options_.policy.grace == Duration::zero()) return Time::max();
  for (std::size_t unit = 0; unit < grace_ends_.size(); ++unit) {
    Time& end = grace_ends_[unit];
    if (!core_.waits_for_more(unit)) {
      end = Time::max();
    } else if (end == Time::max()) {
      end = clock_.now() + options_.policy.grace;
    }
  }
  return std::ranges::min(grace_ends_);
}

void Server::end_graces() {
  if (options_.policy.grace == Duration::zero()) return;
  const Time now = clock_.now();
  for (std::size_t unit = 0; unit < grace_ends_.size(); ++unit) {
    if (grace_ends_[unit] > now) continue;
    grace_ends_[unit] = Time::max();
    core_.on_grace_over(unit);
  }
}

void Server::await_request(Rank worker) {
  // A worker may compute, or evaluate, for as long as it likes.
  const OperationOptions patient{.timeout = Duration::max()};
  Request& request = workers_[static_cast<std::size_t>(worker)].request;
  report_end(pairs_->recv(lend_message(request), worker, tag(kRequestTag), patient), worker,
             Event::kRequest);
}

void Server::await_payload(Rank worker, std::size_t unit, const LentSpan& memory) {
  workers_[static_cast<std::size_t>(worker)].arrives[unit] = true;
  report_end(pairs_->recv(memory, worker, tag(push_tag(unit))), worker, unit);
}

/// Makes the end of the operation an event.
void Server::report_end(const Work& work, Rank worker, std::size_t unit) {
  work.drive_in_background();
  work.on_done([events = events_, worker, unit](const Work& done) {
    events->push({worker, unit, done});
  });
}

void Server::handle(const Event& event) {
  Worker& worker = workers_[static_cast<std::size_t>(event.worker)];
  const bool is_payload = event.unit != Event::kRequest;
  if (is_payload) worker.arrives[event.unit] = false;
  const auto error = event.work.error();
  if (error || worker.gone) {
    if (is_payload) drop(worker.gradients[event.unit]);
    return remove(event.worker, error ? error->message : "");
  }
  try {
    is_payload ? on_payload(event.worker, event.unit) : on_request(event.worker, worker.request);
  } catch (const WorkerLost& lost) {
    remove(event.worker, lost.what());
  } catch (const Exception& e) {
    // Only a program that is not this one does that.
    const bool by_worker = e.kind() == ErrorKind::corrupted || e.kind() == ErrorKind::mismatch;
    if (!by_worker || event.worker == pairs_->rank()) throw;
    pairs_->abort_with(event.worker, e.what());
    remove(event.worker, e.what());
  }
}

void Server::on_request(Rank rank, const Request& request) {
  Worker& worker = workers_[static_cast<std::size_t>(rank)];
  // A worker that has not lost the mirrored server only leaves this one.
  const bool may_leave = options_.adopt && request.kind == Request::Kind::leave;
  if (!worker.greeted && request.kind != Request::Kind::hello && !may_leave) {
    throw Exception(ErrorKind::corrupted, fmt::format("worker {} does not begin with hello", rank));
  }
  switch (request.kind) {
    case Request::Kind::hello:
      greet(rank, request);
      break;
    case Request::Kind::load:
    case Request::Kind::push:
      receive(rank, request);
      break;
    case Request::Kind::pull:
      send_all_values(rank);
      break;
    case Request::Kind::read: {
      const std::size_t unit = check_unit(rank, request);
      send_values(rank, {options_.placement.group_of(rank), unit, core_.version(unit)}, false);
      break;
    }
    case Request::Kind::join:
      join(rank, request);
      break;
    case Request::Kind::deal:
      begin_dealing(rank, request);
      break;
    case Request::Kind::take:
      if (!dealer_) {
        throw Exception(
            ErrorKind::corrupted,
            fmt::format("worker {} asks for samples, and this server deals none", rank));
      }
      if (stop_ == 0) stop_ = request.base;
      send_batch(rank, request.value);
      break;
    case Request::Kind::progress:
      reply(rank, encode(dealer_ ? dealer_->progress() : DealProgress()));
      break;
    case Request::Kind::fetch_states:
    case Request::Kind::load_states:
      exchange_states(rank, request);
      break;
    case Request::Kind::begin_at:
      core_.begin_at(check_unit(rank, request), request.base);
      shards_.begun_at(check_unit(rank, request), request.base);
      reply(rank, {});
      break;
    case Request::Kind::meet:
      on_meet(rank, request);
      break;
    case Request::Kind::report:
      reply(rank, encode(report()));
      break;
    case Request::Kind::order:
      send_order(rank, request);
      break;
    case Request::Kind::leave:
      worker.leaves = true;
      return settle(rank);
    default:
      throw Exception(ErrorKind::corrupted,
                      fmt::format("worker {} sends a request of unknown kind {}", rank,
                                  static_cast<std::int64_t>(request.kind)));
  }
  await_request(rank);
}

void Server::greet(Rank rank, const Request& request) {
  if (static_cast<std::uint64_t>(request.value) != options_.fingerprint) {
    throw Exception(ErrorKind::mismatch,
                    fmt::format("worker {} has another model, or other settings of the servers, "
                                "than the server; start the same program on all",
                                rank));
  }
  if (options_.adopt && left_versions_.empty()) take_over();
  workers_[static_cast<std::size_t>(rank)].greeted = true;
  reply(rank, {});
}

/// The mirrored server is lost. This one begins with its own clocks and versions.
void Server::take_over() {
  const Mirror::Adopted left = options_.adopt();
  left_versions_ = left.versions;
  lost_updates_.resize(left_versions_.size());
  if (left.dealing) {
    dealing_ = *left.dealing;
    dealer_.emplace(dealing_.samples, dealing_.epochs, options_.placement.workers,
                    dealing_.progress);
  }
}

void Server::join(Rank rank, const Request& request) {
  std::vector<std::int64_t> known(2 * left_versions_.size());
  if (known.empty() || request.value != static_cast<std::int64_t>(known.size())) {
    throw Exception(ErrorKind::corrupted,
                    fmt::format("worker {} comes from a server of {} units, and this one stands "
                                "in for one of {}",
                                rank, request.value / 2, left_versions_.size()));
  }
  wait_for(
      pairs_->recv({known.data(), known.size(), DataType::int64, nullptr}, rank, tag(kStateTag)));
  for (std::size_t unit = 0; unit < left_versions_.size(); ++unit) {
    lost_updates_[unit] = std::max(lost_updates_[unit], known[2 * unit] - left_versions_[unit]);
    lost_gradients_ += known[2 * unit + 1];
  }
  reply(rank, {});
}

std::optional<Dealing> Server::dealing() const {
  if (!dealer_) return std::nullopt;
  return Dealing{dealing_.samples, dealing_.epochs, dealer_->progress()};
}

void Server::on_meet(Rank rank, const Request& request) {
  if (request.value < 0 || request.base < 0) {
    throw Exception(ErrorKind::corrupted, fmt::format("worker {} tells a pace below 0", rank));
  }
  Worker& worker = workers_[static_cast<std::size_t>(rank)];
  worker.pace = {.mean = Duration(request.value), .deviation = Duration(request.base)};
  worker.meets = true;
  settle(rank);
}

void Server::begin_dealing(Rank rank, const Request& request) {
  constexpr std::int64_t kMany = 1'000'000;
  if (dealer_ || request.batches < 0 || request.batches > kMany) {
    throw Exception(ErrorKind::corrupted,
                    fmt::format("worker {} asks to deal samples{} after {} batches", rank,
                                dealer_ ? " again" : "", request.batches));
  }
  DealProgress progress{.dealt = request.base, .unapplied = {}};
  progress.unapplied.resize(static_cast<std::size_t>(request.batches));
  if (request.batches > 0)
    wait_for(pairs_->recv(lend_all(progress.unapplied), rank, tag(kStateTag)));
  try {
    dealer_.emplace(request.value, request.clock, options_.placement.workers, progress);
    dealing_ = {request.value, request.clock, {}};
  } catch (const Exception& e) {
    throw Exception(ErrorKind::corrupted, fmt::format("worker {}: {}", rank, e.what()));
  }
  shards_.dealing_begun();
  reply(rank, {});
}

/// Waits for the worker. The optimizers do not step meanwhile, so that the states are of one
/// moment.
void Server::exchange_states(Rank rank, const Request& request) {
  const std::vector<LentSpan> states = shards_.states();
  if (request.value != static_cast<std::int64_t>(states.size())) {
    throw Exception(ErrorKind::corrupted,
                    fmt::format("worker {} names {} states of optimizers, and there are {}", rank,
                                request.value, states.size()));
  }
  const bool fetches = request.kind == Request::Kind::fetch_states;
  for (const LentSpan& state : states) {
    const Work moved = fetches ? pairs_->send(state, rank, tag(kStateTag))
                               : pairs_->recv(state, rank, tag(kStateTag));
    wait_for(moved);
  }
  if (fetches) return;
  shards_.states_loaded();
  reply(rank, {});
}

/// Waits for a message from or to a worker.
void Server::wait_for(const Work& message) {
  try {
    message.wait();
  } catch (const Exception& e) {
    throw WorkerLost(e.what());
  }
}

std::size_t Server::check_unit(Rank worker, const Request& request) const {
  if (request.unit < 0 || request.unit >= static_cast<std::int64_t>(shards_.units())) {
    throw Exception(ErrorKind::corrupted, fmt::format("worker {} names unit {} of {}", worker,
                                                      request.unit, shards_.units()));
  }
  const auto unit = static_cast<std::size_t>(request.unit);
  const Placement& placement = options_.placement;
  if (request.kind == Request::Kind::push &&
      placement.worker_of(placement.group_of(worker), unit) != worker) {
    throw Exception(
        ErrorKind::corrupted,
        fmt::format("worker {} pushes slice {} of another member of its group", worker, unit));
  }
  return unit;
}

void Server::receive(Rank rank, const Request& request) {
  Worker& worker = workers_[static_cast<std::size_t>(rank)];
  const std::size_t unit = check_unit(rank, request);
  if (worker.arrives[unit]) {
    throw Exception(ErrorKind::corrupted,
                    fmt::format("worker {} sends unit {} again before it has arrived", rank, unit));
  }
  worker.announced[unit] = request;
  const GradientId id = worker.gradients[unit] = take_buffer(unit);
  LentSpan memory = gradient_memory(id);
  if (const auto codec = codec_of(request)) {
    Buffer& encoded = worker.encoded[unit];
    encoded.resize(codec->encoded_bytes(memory.count));
    memory = {encoded.data(), encoded.size(), DataType::uint8, nullptr};
  }
  await_payload(rank, unit, memory);
}

/// The codec of the gradient that the request announces; null: none.
UnitCodecs::Pointer Server::codec_of(const Request& request) const {
  const bool may_be = options_.codecs && request.kind == Request::Kind::push && request.clock >= 0;
  return may_be ? options_.codecs->push(static_cast<std::size_t>(request.unit), request.clock)
                : nullptr;
}

/// Decodes the gradient that has arrived, unless it has no codec.
void Server::decode(Rank rank, const Request& request) {
  const auto codec = codec_of(request);
  if (!codec) return;
  const auto unit = static_cast<std::size_t>(request.unit);
  const Worker& worker = workers_[static_cast<std::size_t>(rank)];
  const LentSpan gradient = gradient_memory(worker.gradients[unit]);
  const int server = pairs_->rank() - options_.placement.rank_of_server(0);
  const std::uint64_t seed =
      options_.codecs->seed_of(unit, server, options_.placement.group_of(rank), request.clock);
  value_or_throw(codec->decode(worker.encoded[unit], seed,
                               {static_cast<float*>(gradient.data), gradient.count}));
}

void Server::on_payload(Rank rank, std::size_t unit) {
  const Worker& worker = workers_[static_cast<std::size_t>(rank)];
  const Request& request = worker.announced[unit];
  const GradientId id = worker.gradients[unit];
  const Time begin = clock_.now();
  if (request.kind == Request::Kind::load) {
    const LentSpan values = shards_.values(unit);
    std::memcpy(values.data, gradients_[id].memory.data(), bytes_of(values));
    drop(id);
    snapshots_[unit] = {};
    shards_.loaded(unit);
    return reply(rank, {});
  }
  if (first_ == Time{}) first_ = begin;
  const Rank group = options_.placement.group_of(rank);
  try {
    decode(rank, request);
    if (!(request.samples > 0)) {
      throw Exception(ErrorKind::corrupted, fmt::format("worker {} pushes a gradient of {} samples",
                                                        rank, request.samples));
    }
    gradients_[id].samples = request.samples;
    // A worker that is lost before it has pushed the last unit has not pushed its samples.
    const bool is_last =
        unit + static_cast<std::size_t>(options_.placement.members) >= shards_.units();
    if (dealer_ && is_last) gradients_[id].batches = dealer_->on_push(rank, request.batches);
    core_.on_push({group, unit, request.clock, request.base, id, request.rate});
  } catch (const Exception&) {
    drop(id);  // The core has not taken it.
    throw;
  }
  if (request.value != 0) core_.on_pull(group, unit, request.clock + 1);
  busy_ += clock_.now() - begin;
  settle(rank);
}

/// Whether the condition holds for all members of the worker's group.
template <class Condition>
bool Server::all_members(Rank worker, Condition condition) const {
  const int members = options_.placement.members;
  const auto first = workers_.begin() + options_.placement.group_of(worker) * members;
  return std::ranges::all_of(first, first + members, condition);
}

/// The gradients of a worker may arrive after its request to meet, or to leave.
void Server::settle(Rank rank) {
  Worker& worker = workers_[static_cast<std::size_t>(rank)];
  if (std::ranges::find(worker.arrives, true) != worker.arrives.end()) return;
  if (worker.meets) {
    if (all_members(rank, &Worker::meets)) core_.on_pause(options_.placement.group_of(rank));
    end_meeting();
  }
  if (worker.leaves) remove(rank, "");
}

/// If all workers meet, all go on.
void Server::end_meeting() {
  if (!std::ranges::all_of(workers_, [](const Worker& each) { return each.gone || each.meets; })) {
    return;
  }
  const std::int64_t clock = core_.resume();
  for (Rank worker = 0; worker < options_.placement.workers; ++worker) {
    if (std::exchange(workers_[static_cast<std::size_t>(worker)].meets, false)) {
      reply(worker, {clock, dealer_ ? dealer_->applied() : 0, first_worker()});
    }
  }
}

Rank Server::first_worker() const {
  return static_cast<Rank>(std::ranges::find(workers_, false, &Worker::gone) - workers_.begin());
}

/// `why` is empty if the worker has left.
void Server::remove(Rank rank, const std::string& why) {
  Worker& worker = workers_[static_cast<std::size_t>(rank)];
  if (std::exchange(worker.gone, true)) return;
  --connected_;
  worker.meets = false;
  if (all_members(rank, &Worker::gone)) core_.on_lost(options_.placement.group_of(rank));
  if (dealer_) dealer_->on_gone(rank);
  end_meeting();
  if (why.empty()) {
    left_ = true;
  } else {
    lost_last_ = why;
    if (order_) order_->on_lost(rank);
    if (options_.warn) options_.warn(why);
    remove_group(rank, why);
  }
}

/// The other members of a lost worker's group have no complete gradient any more.
void Server::remove_group(Rank lost, const std::string& why) {
  const Placement& placement = options_.placement;
  for (int member = 0; member < placement.members; ++member) {
    const Rank rank = placement.group_of(lost) * placement.members + member;
    if (workers_[static_cast<std::size_t>(rank)].gone) continue;
    const std::string reason = fmt::format("worker {} of its group is lost: {}", lost, why);
    if (rank != pairs_->rank()) pairs_->abort_with(rank, reason);
    remove(rank, reason);
  }
}

void Server::send_answers() {
  for (const Answer& answer : core_.take_answers()) {
    send_values(options_.placement.worker_of(answer.worker, answer.unit), answer, true);
  }
}

void Server::send_all_values(Rank worker) {
  const Rank group = options_.placement.group_of(worker);
  for (std::size_t unit = 0; unit < shards_.units(); ++unit) {
    send_values(worker, {group, unit, core_.version(unit)}, false);
  }
}

void Server::send_batch(Rank worker, std::int64_t wanted) {
  const auto message = std::make_shared<Deal>(dealer_->on_take(worker, wanted));
  message->first = first_worker();
  message->stop = stop_;
  if (order_) order_->on_deal(worker, *message);
  LentSpan lent = lend_message(*message);
  lent.keep_alive = message;
  pairs_->send(lent, worker, tag(kDealTag)).drive_in_background();
}

/// `encoded`: with the codec of pulls, if there is one.
void Server::send_values(Rank worker, const Answer& answer, bool encoded) {
  struct Message {
    Reply reply;
    std::shared_ptr<const Buffer> values;
  };
  if (order_) order_->on_answer(answer);
  const auto message = std::make_shared<Message>();
  message->reply.value = answer.version;
  const bool has_codec = options_.codecs && options_.codecs->pull(answer.unit);
  message->values = snapshot(answer.unit, encoded && has_codec);
  LentSpan values = shards_.values(answer.unit);
  if (encoded && has_codec) {
    values.count = message->values->size();
    values.type = DataType::uint8;
  }
  const Work sent = pairs_->coalesced([&](Communicator& together) {
    LentSpan head = lend_message(message->reply);
    head.keep_alive = message;
    together.send(head, worker, tag(pull_tag(answer.unit)));
    together.send({message->values->data(), values.count, values.type, message}, worker,
                  tag(pull_tag(answer.unit)));
  });
  sent.drive_in_background();
}

/// The optimizer steps the values while they are being sent, so that a copy of them is sent.
/// Workers that ask for one version share it.
std::shared_ptr<const Server::Buffer> Server::snapshot(std::size_t unit, bool encoded) {
  std::shared_ptr<Buffer>& copy = encoded ? snapshots_[unit].encoded : snapshots_[unit].plain;
  if (copy) return copy;
  const Time begin = clock_.now();
  const LentSpan values = shards_.values(unit);
  if (encoded) {
    const auto codec = options_.codecs->pull(unit);
    copy = std::make_shared<Buffer>(codec->encoded_bytes(values.count));
    codec->encode({static_cast<const float*>(values.data), values.count}, {}, 0, *copy);
  } else {
    const auto* bytes = static_cast<const std::byte*>(values.data);
    copy = std::make_shared<Buffer>(bytes, bytes + bytes_of(values));
  }
  busy_ += clock_.now() - begin;
  return copy;
}

void Server::reply(Rank worker, std::vector<std::int64_t> integers) {
  struct Message {
    Reply reply;
    std::vector<std::int64_t> integers;
  };
  const auto message = std::make_shared<Message>();
  message->integers = std::move(integers);
  message->reply.value = static_cast<std::int64_t>(message->integers.size());
  LentSpan head = lend_message(message->reply);
  head.keep_alive = message;
  pairs_->send(head, worker, tag(kReplyTag)).drive_in_background();
  if (message->integers.empty()) return;
  pairs_
      ->send({message->integers.data(), message->integers.size(), DataType::int64, message}, worker,
             tag(kReplyTag))
      .drive_in_background();
}

void Server::apply(std::size_t unit, std::span<const GradientId> gradients, double factor) {
  if (options_.policy.whole_steps) {
    whole_.emplace_back(gradients.begin(), gradients.end());
    if (whole_.size() == shards_.units()) apply_all(factor);
    return;
  }
  const double weight = options_.weighs_samples ? weigh(unit, gradients) : 1;
  shards_.step(unit, mean_of(gradients), factor * weight);
  conclude(unit, gradients);
}

/// Steps all units. A worker that is lost may have pushed to some of the servers only, which then
/// step with other workers' means than the rest. The launcher ends such a job (mode sync with use
/// 1), and a server that waits for one which takes no more steps gets an error.
void Server::apply_all(double factor) {
  std::vector<LentSpan> means;
  for (const auto& gradients : whole_) means.push_back(mean_of(gradients));
  shards_.step_all(means, factor);
  for (std::size_t unit = 0; unit < whole_.size(); ++unit) conclude(unit, whole_[unit]);
  whole_.clear();
}

/// Multiplies the gradients of a step by their weights in its mean, or returns the weight of a
/// single gradient as a factor on the learning rate.
double Server::weigh(std::size_t unit, std::span<const GradientId> gradients) {
  if (options_.policy.mode != Mode::sync) {
    Samples& all = samples_[unit];
    all.sum += gradients_[gradients.front()].samples;
    ++all.gradients;
    return gradients_[gradients.front()].samples * static_cast<double>(all.gradients) / all.sum;
  }
  double sum = 0;
  for (const GradientId id : gradients) sum += gradients_[id].samples;
  for (const GradientId id : gradients) {
    scale(gradient_memory(id),
          gradients_[id].samples * static_cast<double>(gradients.size()) / sum);
  }
  return 1;
}

/// Overwrites the first of the gradients.
LentSpan Server::mean_of(std::span<const GradientId> gradients) {
  std::vector<LentSpan> memory;
  for (const GradientId id : gradients) memory.push_back(gradient_memory(id));
  return take_mean(memory);
}

/// The unit has been stepped with these gradients.
void Server::conclude(std::size_t unit, std::span<const GradientId> gradients) {
  snapshots_[unit] = {};
  for (const GradientId id : gradients) {
    if (dealer_) dealer_->on_applied(std::exchange(gradients_[id].batches, {}));
    drop(id);
  }
}

void Server::drop(GradientId id) {
  Gradient& gradient = gradients_[id];
  gradient.used = false;
  if (dealer_) dealer_->on_dropped(std::exchange(gradient.batches, {}));
}

LentSpan Server::gradient_memory(GradientId id) {
  Gradient& gradient = gradients_[id];
  const LentSpan values = shards_.values(gradient.unit);
  return {gradient.memory.data(), values.count, values.type, nullptr};
}

GradientId Server::take_buffer(std::size_t unit) {
  const auto fits = [&](const Gradient& each) { return !each.used && each.unit == unit; };
  auto found = std::ranges::find_if(gradients_, fits);
  if (found == gradients_.end()) {
    gradients_.push_back({.unit = unit, .memory = Buffer(bytes_of(shards_.values(unit)))});
    found = std::prev(gradients_.end());
  }
  found->used = true;
  return static_cast<GradientId>(found - gradients_.begin());
}

void Server::log(const Applied& gradient) {
  if (!order_) return;
  const Worker& worker = workers_[static_cast<std::size_t>(gradient.worker)];
  order_->on_gradient(gradient, worker.announced[gradient.unit],
                      gradients_[gradient.gradient].memory);
}

void Server::send_order(Rank rank, const Request& request) {
  if (!order_) {
    throw Exception(
        ErrorKind::corrupted,
        fmt::format("worker {} asks for the order of updates, which this server does not keep",
                    rank));
  }
  std::vector<OrderRecord> values;
  for (std::size_t unit = 0; request.value != 0 && unit < shards_.units(); ++unit) {
    values.push_back(order_->values_record(unit, core_.version(unit), *snapshot(unit, false)));
  }
  reply(rank, page_of(request.value != 0 ? values : order_->records(), request.base));
}

ServerReport Server::report() const {
  ServerReport report{.mean_factor = core_.mean_factor(), .busy = busy_};
  for (std::size_t unit = 0; unit < shards_.units(); ++unit) {
    report.by_unit.push_back(core_.staleness_of_unit(unit));
    const std::int64_t left = left_versions_.empty() ? 0 : left_versions_[unit];
    report.versions.push_back(left + core_.version(unit));
  }
  for (Rank worker = 0; worker < options_.placement.groups(); ++worker) {
    report.by_worker.push_back(core_.staleness_of_worker(worker));
    report.dropped.push_back(core_.dropped(worker));
  }
  for (const Worker& worker : workers_) report.paces.push_back(worker.pace);
  if (first_ != Time{}) report.elapsed = clock_.now() - first_;
  for (const std::int64_t updates : lost_updates_) report.lost_updates += updates;
  report.lost_gradients = lost_gradients_;
  report.lost_servers = left_versions_.empty() ? 0 : 1;
  return report;
}

}  // namespace gradwire::servers
