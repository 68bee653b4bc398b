#include "gradwire/federated/simulated_round.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <queue>
#include <tuple>
#include <type_traits>
#include <utility>

#include "gradwire/base/bytes.h"
#include "gradwire/base/check.h"
#include "gradwire/base/clock.h"
#include "gradwire/base/random.h"
#include "gradwire/federated/secure/masking_client.h"

namespace gradwire::federated {
namespace {

/// Messages of a client in secure aggregation.
constexpr int kMessages = 4;

Secret simulated_signing_key(ClientId client) {
  Secret key;
  const auto number = static_cast<std::uint64_t>(client) + 1;
  store_little_endian(key.bytes().data(), number);
  return key;
}

class RoundSimulation {
 public:
  RoundSimulation(Round& round, const SimulatedClients& clients, const SimulatedWork& work,
                  UpdateSource& updates, std::span<ClientRecord> records)
      : round_(round), clients_(clients), work_(work), updates_(updates), records_(records) {}

  void run(Time begin) {
    check_in(begin);
    Time now = begin;
    while (deliver(now), !round_.ended()) {
      if (events_.empty() || round_.deadline() <= events_.top().at) {
        now = round_.deadline();
        round_.on_time(now);
      } else {
        const Event event = events_.top();
        events_.pop();
        now = event.at;
        handle(event);
      }
    }
    for (const ClientId client : round_.counted()) ++record(client).counted;
  }

 private:
  enum class Kind : std::uint8_t { configured, ready, secure, update, lost };
  struct Event {
    Time at;
    ClientId client = 0;
    Kind kind = Kind::lost;
    bool operator>(const Event& other) const {
      return std::tie(at, client, kind) > std::tie(other.at, other.client, other.kind);
    }
  };
  /// The work of an asked client.
  struct Work {
    Fate fate;
    Time begin{};        ///< When it has the model.
    Duration compute{};  ///< Its duration.
    double epochs = 0;
    bool is_computed = false;  ///< Its compute is in the record.
    bool is_over = false;
    std::optional<MaskingClient> masking;
    std::optional<SecureAnswer> answer;  ///< On its way.
    int answers = 0;                     ///< It has sent so many.
    Order::Upload upload;
  };

  ClientRecord& record(ClientId client) { return records_[static_cast<std::size_t>(client)]; }

  void check_in(Time begin) {
    for (ClientId client = 0; client < clients_.size(); ++client) {
      if (!clients_.checks_in(client, round_.number())) continue;
      const Candidate candidate{client, clients_.samples(client), record(client).counted};
      if (round_.on_check_in(candidate, begin)) ++record(client).eligible;
    }
    if (round_.phase() == Phase::selecting) round_.on_time(round_.deadline());
  }

  void deliver(Time now) {
    uploads_.clear();
    for (const Order& order : round_.take_orders())
      std::visit([&](const auto& what) { obey(order.client, what, now); }, order.what);
    if (!uploads_.empty()) start_uploads(now);
  }

  void obey(ClientId client, const Order::Train& train, Time now) {
    start(client, now, now + train.time);
  }
  void obey(ClientId, const Order::Again&, Time) {}
  void obey(ClientId client, const Order::Stop&, Time now) { stop(client, now); }
  void obey(ClientId client, const Order::Upload& upload, Time now) {
    works_[client].upload = upload;
    if (upload.secure)
      join(client, upload, now);
    else
      uploads_.push_back(client);
  }
  void obey(ClientId client, const Roster& roster, Time now) {
    answer(client, works_[client].masking->on_roster(roster), roster, now);
  }
  void obey(ClientId client, const ForwardedShares& shares, Time) {
    record(client).down_bytes += static_cast<double>(encode(shares).size());
    if (works_[client].masking->on_shares(shares)) uploads_.push_back(client);
  }
  void obey(ClientId client, const AliveList& list, Time now) {
    answer(client, works_[client].masking->on_alive_list(list), list, now);
  }
  void obey(ClientId client, const UnmaskRequest& request, Time now) {
    answer(client, works_[client].masking->on_unmask_request(request), request, now);
  }

  void start(ClientId client, Time now, Time deadline) {
    Work& one = works_[client];
    one.fate = clients_.fate(client, round_.number(), work_.epochs);
    // The server sends the model to clients one after the other.
    if (work_.server_rate > 0) sent_ += duration_of(work_.model_bytes / work_.server_rate);
    one.begin = now + sent_ + clients_.down_time(client, work_.model_bytes);
    plan_work(client, one, deadline);
    ++record(client).asked;
    record(client).down_bytes += work_.model_bytes;
    push(one.begin, client, Kind::configured);
    const bool is_partial = one.epochs < work_.epochs;
    const bool is_useless = one.epochs == 0 || (is_partial && work_.partial == Partial::drop);
    if (one.fate.vanishes && *one.fate.vanishes <= 1) {
      one.compute = duration_of(seconds(one.compute) * *one.fate.vanishes);
      push(one.begin + one.compute, client, Kind::lost);
    } else {
      push(one.begin + one.compute, client, is_useless ? Kind::lost : Kind::ready);
    }
  }

  /// There is time for so many epochs, and a part of one at the end.
  void plan_work(ClientId client, Work& one, Time deadline) const {
    const Duration whole = clients_.compute_time(client);
    const double wanted = one.fate.epochs.value_or(work_.epochs);
    one.compute = duration_of(seconds(whole) * wanted / work_.epochs);
    one.epochs = wanted;
    const Duration limit = std::max(Duration{}, deadline - one.begin - Duration(1));
    if (one.compute <= limit) return;
    one.compute = limit;
    one.epochs = work_.epochs * seconds(limit) / seconds(whole);
  }

  void join(ClientId client, const Order::Upload& upload, Time now) {
    Work& one = works_[client];
    SecureHistory history;
    const UpdateShape& shape = round_.shape();
    MaskingClientOptions options{.self = client,
                                 .round = round_.number(),
                                 .policy = *upload.secure,
                                 .least = *upload.secure,
                                 .shapes = {{shape.elements, upload.bits}, {shape.metrics, 64}},
                                 .random = simulated_bytes(client)};
    if (upload.secure->active) set_signing_keys(options, client);
    one.masking.emplace(value_or_throw(MaskingClient::join(std::move(options), history)));
    answer(client, one.masking->advertise(), std::optional<Roster>(), now);
  }

  /// Masks cancel, so they need not be secret here; but a round must be the same in each run.
  RandomBytes simulated_bytes(ClientId client) const {
    const auto a = static_cast<std::uint64_t>(client);
    const auto b = static_cast<std::uint64_t>(round_.number());
    return [random = Random(mixed_seed({a, b}))](Bytes bytes) mutable -> Status {
      for (std::byte& one : bytes) one = static_cast<std::byte>(random.next() >> 56);
      return {};
    };
  }

  void set_signing_keys(MaskingClientOptions& options, ClientId client) const {
    options.signing_key = simulated_signing_key(client);
    options.signing_keys = simulated_enrolled_key;
  }

  /// `order`: what it answers.
  template <class Answer, class OrderMessage>
  void answer(ClientId client, const Result<Answer>& answer, const OrderMessage& order, Time now) {
    Work& one = works_[client];
    double down = 0;
    if constexpr (!std::is_same_v<OrderMessage, std::optional<Roster>>)
      down = static_cast<double>(encode(order).size());
    record(client).down_bytes += down;
    if (!answer || vanishes_now(one)) return push(now, client, Kind::lost);
    const auto up = static_cast<double>(encode(*answer).size());
    record(client).up_bytes += up;
    one.answer = *answer;
    const Duration time = clients_.down_time(client, down) + clients_.up_time(client, up);
    push(now + time, client, Kind::secure);
  }

  /// Whether it does not send its next message of secure aggregation, of kMessages.
  static bool vanishes_now(Work& work) {
    const int number = work.answers++;
    const auto& vanishes = work.fate.vanishes;
    return vanishes && static_cast<int>((*vanishes - 1) * kMessages) <= number;
  }

  void handle(const Event& event) {
    Work& one = works_[event.client];
    if (one.is_over) return;
    if (event.kind == Kind::configured) {
      (void)round_.on_configured(event.client, event.at);
    } else if (event.kind == Kind::ready) {
      add_compute(event.client, one.compute);
      (void)round_.on_ready(event.client, event.at);
    } else if (event.kind == Kind::secure) {
      const SecureAnswer sent = *std::exchange(one.answer, std::nullopt);
      if (!round_.on_secure(event.client, sent, event.at)) round_.on_lost(event.client, event.at);
    } else if (event.kind == Kind::update) {
      finish_upload(event.client, one, event.at);
    } else {
      add_compute(event.client, one.compute);
      one.is_over = true;
      round_.on_lost(event.client, event.at);
    }
  }

  void stop(ClientId client, Time now) {
    Work& one = works_[client];
    if (!one.is_over) add_compute(client, std::clamp(now - one.begin, Duration{}, one.compute));
    one.is_over = true;
  }

  /// Adds what a client has computed, once.
  void add_compute(ClientId client, Duration compute) {
    if (std::exchange(works_[client].is_computed, true)) return;
    record(client).compute_seconds += seconds(compute);
  }

  void finish_upload(ClientId client, Work& one, Time now) {
    Contribution contribution = updates_.next();
    if (!one.masking) {
      one.is_over = true;
      (void)round_.on_update(client, contribution, now);
      return;
    }
    const auto masked = value_or_throw(one.masking->mask(std::move(contribution)));
    if (!round_.on_secure(client, masked, now)) round_.on_lost(client, now);
  }

  bool vanishes_in_upload(Work& one) {
    return one.masking ? vanishes_now(one) : one.fate.vanishes.has_value();
  }

  double upload_bytes(ClientId client) {
    const int bits = works_[client].upload.bits;
    if (work_.update_bytes) return work_.update_bytes(bits);
    return static_cast<double>(packed_bytes(round_.shape(), bits));
  }

  void start_uploads(Time now) {
    std::vector<std::pair<Time, ClientId>> arrivals;
    for (const ClientId client : uploads_) {
      Work& one = works_[client];
      const double bytes = upload_bytes(client);
      const Duration time = clients_.up_time(client, bytes);
      if (vanishes_in_upload(one)) {
        const double part = std::fmod(*one.fate.vanishes, 1);
        push(now + duration_of(seconds(time) * part), client, Kind::lost);
        continue;
      }
      record(client).up_bytes += bytes;
      arrivals.emplace_back(now + time, client);
    }
    std::ranges::sort(arrivals);
    queue_uploads(arrivals);
  }

  /// The server receives one update after the other.
  void queue_uploads(const std::vector<std::pair<Time, ClientId>>& arrivals) {
    std::vector<AwaitedUpdate> awaited;
    Time received{};
    for (const auto& [at, client] : arrivals) {
      const Duration port = work_.server_rate > 0
                                ? duration_of(upload_bytes(client) / work_.server_rate)
                                : Duration{};
      received = std::max(at, received + port);
      if (received >= round_.deadline()) break;  // Too late, as all after it.
      push(received, client, Kind::update);
      awaited.push_back({client, works_[client].upload, works_[client].epochs});
    }
    updates_.begin(awaited);
  }

  void push(Time at, ClientId client, Kind kind) { events_.push({at, client, kind}); }

  Round& round_;
  const SimulatedClients& clients_;
  const SimulatedWork& work_;
  UpdateSource& updates_;
  std::span<ClientRecord> records_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::map<ClientId, Work> works_;
  std::vector<ClientId> uploads_;  ///< Clients that may upload now.
  Duration sent_{};
};

}  // namespace

std::optional<PublicKey> simulated_enrolled_key(ClientId client) {
  const auto key = ed25519_public(simulated_signing_key(client));
  return key ? std::optional(*key) : std::nullopt;
}

void NoUpdates::begin(std::span<const AwaitedUpdate> awaited) {
  uploads_.clear();
  given_ = 0;
  for (const AwaitedUpdate& one : awaited) uploads_.push_back(one.upload);
}

Contribution NoUpdates::next() {
  GRADWIRE_CHECK(given_ < uploads_.size());
  return {ModularVector(0, uploads_[given_++].bits), ModularVector(0, 64)};
}

void simulate_round(Round& round, const SimulatedClients& clients, const SimulatedWork& work,
                    UpdateSource& updates, std::span<ClientRecord> records, Time begin) {
  GRADWIRE_CHECK(records.size() == static_cast<std::size_t>(clients.size()));
  RoundSimulation(round, clients, work, updates, records).run(begin);
}

}  // namespace gradwire::federated
