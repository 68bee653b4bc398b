#include "gradwire/federated/simulated_round.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <queue>
#include <tuple>

#include "gradwire/base/check.h"
#include "gradwire/base/clock.h"
#include "gradwire/base/refuse.h"
#include "gradwire/base/suggest.h"

namespace gradwire::federated {
namespace {

constexpr std::array<std::string_view, 3> kPartials{"count", "drop", "normalize"};

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
  enum class Kind : std::uint8_t { configured, ready, update, lost };
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
    Duration compute{};  ///< What it will do.
    double epochs = 0;
    bool is_over = false;
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
    std::vector<std::pair<ClientId, Order::Upload>> uploads;
    for (const Order& order : round_.take_orders()) {
      if (const auto* train = std::get_if<Order::Train>(&order.what))
        start(order.client, now, now + train->time);
      else if (const auto* upload = std::get_if<Order::Upload>(&order.what))
        uploads.emplace_back(order.client, *upload);
      else if (std::holds_alternative<Order::Stop>(order.what))
        stop(order.client, now);
    }
    if (!uploads.empty()) start_uploads(uploads, now);
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

  /// As many epochs as there is time for; a part of one at the end.
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

  void handle(const Event& event) {
    Work& one = works_[event.client];
    if (one.is_over) return;
    if (event.kind == Kind::configured) {
      (void)round_.on_configured(event.client, event.at);
    } else if (event.kind == Kind::ready) {
      record(event.client).compute_seconds += seconds(one.compute);
      (void)round_.on_ready(event.client, event.at);
    } else if (event.kind == Kind::update) {
      one.is_over = true;
      (void)round_.on_update(event.client, updates_.next(), event.at);
    } else {
      if (!uploading_) record(event.client).compute_seconds += seconds(one.compute);
      one.is_over = true;
      round_.on_lost(event.client, event.at);
    }
  }

  void stop(ClientId client, Time now) {
    Work& one = works_[client];
    if (!one.is_over && !uploading_)
      record(client).compute_seconds +=
          seconds(std::clamp(now - one.begin, Duration{}, one.compute));
    one.is_over = true;
  }

  void start_uploads(const std::vector<std::pair<ClientId, Order::Upload>>& uploads, Time now) {
    uploading_ = true;
    std::vector<std::pair<Event, Order::Upload>> ordered;
    for (const auto& [client, upload] : uploads) {
      const double bytes = work_.update_bytes ? work_.update_bytes(upload.bits) : 0;
      const Duration time = clients_.up_time(client, bytes);
      if (const auto& vanishes = works_[client].fate.vanishes) {
        push(now + duration_of(seconds(time) * (*vanishes - 1)), client, Kind::lost);
        continue;
      }
      record(client).up_bytes += bytes;
      ordered.push_back({{now + time, client, Kind::update}, upload});
    }
    std::ranges::sort(ordered, std::less(),
                      [](const auto& one) { return std::pair(one.first.at, one.first.client); });
    queue_uploads(ordered);
  }

  /// The server receives one update after the other.
  void queue_uploads(const std::vector<std::pair<Event, Order::Upload>>& ordered) {
    std::vector<AwaitedUpdate> awaited;
    Time received{};
    for (const auto& [event, upload] : ordered) {
      const double bytes = work_.update_bytes ? work_.update_bytes(upload.bits) : 0;
      const Duration port =
          work_.server_rate > 0 ? duration_of(bytes / work_.server_rate) : Duration{};
      received = std::max(event.at, received + port);
      if (received >= round_.deadline()) break;  // Too late, as all after it.
      push(received, event.client, Kind::update);
      awaited.push_back({event.client, upload, works_[event.client].epochs});
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
  Duration sent_{};
  bool uploading_ = false;
};

}  // namespace

std::string_view name_of(Partial partial) {
  return kPartials[static_cast<std::size_t>(partial)];
}

Partial partial_named(std::string_view name) {
  const auto found = std::ranges::find(kPartials, name);
  if (found == kPartials.end()) refuse(unknown_name("rule of partial work", name, kPartials));
  return static_cast<Partial>(found - kPartials.begin());
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
