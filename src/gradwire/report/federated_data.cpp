#include "gradwire/report/federated_data.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <limits>
#include <span>

#include <nlohmann/json.hpp>

#include "gradwire/report/page_json.h"

namespace gradwire::report {
namespace {

using FigureJson = nlohmann::ordered_json;
using Round = FederatedRecord::Round;
using Client = FederatedRecord::Client;

constexpr std::size_t kRoundPoints = 500;
constexpr Bins kAccuracyBins{.low = 0, .high = 1, .count = 20};

template <class Item>
struct Quantity {
  const char* name;
  double (*of)(const Item& item);
};

constexpr std::array kOfRounds{
    Quantity<Round>{"accuracy", [](const Round& round) { return round.accuracy; }},
    Quantity<Round>{"loss", [](const Round& round) { return round.loss; }},
    Quantity<Round>{"training_loss", [](const Round& round) { return round.training_loss; }},
    Quantity<Round>{"asked", [](const Round& round) -> double { return round.asked; }},
    Quantity<Round>{"ready", [](const Round& round) -> double { return round.ready; }},
    Quantity<Round>{"used", [](const Round& round) -> double { return round.used; }},
    Quantity<Round>{"dropped", [](const Round& round) -> double { return round.dropped; }}};
constexpr std::size_t kMeasured = 3;  ///< The first ones; clients are counted in the others.

constexpr std::array kRoundsOfClients{
    Quantity<Client>{"eligible", [](const Client& client) -> double { return client.eligible; }},
    Quantity<Client>{"asked", [](const Client& client) -> double { return client.asked; }},
    Quantity<Client>{"counted", [](const Client& client) -> double { return client.counted; }}};

constexpr std::array kCosts{
    Quantity<Client>{"compute_seconds",
                     [](const Client& client) { return client.compute_seconds; }},
    Quantity<Client>{"up_bytes", [](const Client& client) { return client.up_bytes; }},
    Quantity<Client>{"down_bytes", [](const Client& client) { return client.down_bytes; }}};

/// Those that were measured.
template <class Item>
std::vector<double> values_of(std::span<const Item> items, double (*of)(const Item&)) {
  std::vector<double> values;
  for (const Item& item : items)
    if (const double value = of(item); std::isfinite(value)) values.push_back(value);
  return values;
}

double sum_over(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum;
}

double mean_over(const std::vector<double>& values) {
  return sum_over(values) / static_cast<double>(values.size());  // NaN without values.
}

std::int64_t abandoned_in(std::span<const Round> rounds) {
  return std::ranges::count_if(rounds, &Round::is_abandoned);
}

FigureJson rounds_curve(const std::vector<Round>& rounds) {
  FigureJson curve;
  const std::size_t intervals = std::min(kRoundPoints, rounds.size());
  for (std::size_t i = 0; i < intervals; ++i) {
    const std::size_t begin = i * rounds.size() / intervals;
    const std::size_t end = (i + 1) * rounds.size() / intervals;
    const auto part = std::span(rounds).subspan(begin, end - begin);
    curve["round"].push_back((part.front().number + part.back().number) / 2.0);
    curve["abandoned"].push_back(abandoned_in(part));
    for (const auto& [name, of] : kOfRounds)
      curve[name].push_back(rounded(mean_over(values_of(part, of))));
  }
  return curve;
}

/// First, last and best value of all rounds; null if none was measured.
FigureJson reached_json(const std::vector<Round>& rounds, double (*of)(const Round&),
                        bool is_accuracy) {
  const Round *first = nullptr, *last = nullptr, *best = nullptr;
  for (const Round& round : rounds) {
    const double value = of(round);
    if (!std::isfinite(value)) continue;
    if (first == nullptr) first = &round;
    last = &round;
    if (best == nullptr || (is_accuracy ? value > of(*best) : value < of(*best))) best = &round;
  }
  if (first == nullptr) return {};
  return {{"count", values_of(std::span(rounds), of).size()},
          {"first", rounded(of(*first))},
          {"last", rounded(of(*last))},
          {"best", rounded(of(*best))},
          {"best_round", best->number}};
}

FigureJson rounds_json(const std::vector<Round>& rounds) {
  const std::span all(rounds);
  const auto sum = [&](double (*of)(const Round&)) {
    return rounded(sum_over(values_of(all, of)));
  };
  FigureJson json{{"committed", std::ssize(rounds) - abandoned_in(all)},
                  {"abandoned", abandoned_in(all)},
                  {"seconds", sum([](const Round& round) { return round.seconds; })},
                  {"up_bytes", sum([](const Round& round) { return round.up_bytes; })},
                  {"down_bytes", sum([](const Round& round) { return round.down_bytes; })},
                  {"curve", rounds_curve(rounds)}};
  for (std::size_t i = 0; i < kOfRounds.size(); ++i) {
    const auto& [name, of] = kOfRounds[i];
    json[name] = i < kMeasured ? reached_json(rounds, of, i == 0) : spread_json(values_of(all, of));
  }
  return json;
}

/// Clients by their samples: up to the first quartile, to the median, to the third one, above. A
/// group without clients is left out, so clients with equal samples are in the same one.
FigureJson groups_json(std::span<const Client> clients) {
  const auto samples_of = [](const Client& client) -> double { return client.samples; };
  const auto samples = values_of<Client>(clients, samples_of);
  const Spread spread = spread_of(samples);
  const std::array borders{spread.lower_quartile, spread.median, spread.upper_quartile,
                           std::numeric_limits<double>::infinity()};
  const double all_samples = sum_over(samples);
  const double all_counted = sum_over(values_of(clients, kRoundsOfClients.back().of));
  FigureJson groups = FigureJson::array();
  double below = -1;
  for (const double border : borders) {
    std::vector<Client> group;
    std::ranges::copy_if(clients, std::back_inserter(group), [&](const Client& client) {
      return client.samples > below && client.samples <= border;
    });
    below = border;
    if (group.empty()) continue;
    const std::span<const Client> part(group);
    const auto [least, most] = std::ranges::minmax(group, {}, &Client::samples);
    const double counted = sum_over(values_of(part, kRoundsOfClients.back().of));
    FigureJson json{
        {"least", least.samples},
        {"most", most.samples},
        {"clients", group.size()},
        {"sample_share", rounded(sum_over(values_of<Client>(part, samples_of)) / all_samples)},
        {"counted_share", rounded(counted / all_counted)}};
    for (const auto& [name, of] : kRoundsOfClients)
      json[name] = rounded(mean_over(values_of(part, of)));
    groups.push_back(std::move(json));
  }
  return groups;
}

FigureJson participation_json(const std::vector<Client>& clients) {
  if (clients.empty()) return {};
  const std::span all(clients);
  FigureJson json{{"never", std::ranges::count(clients, 0, &Client::counted)},
                  {"groups", groups_json(all)}};
  for (const auto& [name, of] : kRoundsOfClients) json[name] = spread_json(values_of(all, of));
  return json;
}

/// 100 % is in the last bin.
FigureJson accuracy_histogram(std::vector<double> accuracies) {
  for (double& accuracy : accuracies) accuracy = std::min(accuracy, std::nextafter(1.0, 0.0));
  return histogram_json(accuracies, kAccuracyBins);
}

FigureJson costs_json(const std::vector<Client>& clients) {
  if (clients.empty()) return {};
  FigureJson json;
  for (const auto& [name, of] : kCosts) json[name] = spread_json(values_of(std::span(clients), of));
  return json;
}

FigureJson classes_json(const std::vector<FederatedRecord::DeviceClass>& classes) {
  FigureJson list = FigureJson::array();
  for (const auto& one : classes) {
    list.push_back({{"devices", one.devices},
                    {"clients", one.clients},
                    {"sample_share", rounded(one.sample_share)},
                    {"counted_share", rounded(one.counted_share)},
                    {"accuracy", rounded(one.accuracy)},
                    {"compute_seconds", rounded(one.compute_seconds)},
                    {"up_bytes", rounded(one.up_bytes)},
                    {"down_bytes", rounded(one.down_bytes)}});
  }
  return list;
}

}  // namespace

FigureJson federated_json(const ReportFederated& item) {
  const FederatedRecord& record = item.record;
  const auto accuracies = values_of<Client>(std::span(record.clients),
                                            [](const Client& client) { return client.accuracy; });
  return {{"name", item.name},
          {"source", item.source},
          {"rounds", rounds_json(record.rounds)},
          {"clients", record.clients.size()},
          {"jain", rounded(record.jain)},
          {"mean_accuracy", rounded(record.mean_accuracy)},
          {"worst_tenth_accuracy", rounded(record.worst_tenth_accuracy)},
          {"participation", participation_json(record.clients)},
          {"accuracy", spread_json(accuracies)},
          {"accuracy_histogram", accuracy_histogram(accuracies)},
          {"classes", classes_json(record.classes)},
          {"cost", costs_json(record.clients)}};
}

}  // namespace gradwire::report
