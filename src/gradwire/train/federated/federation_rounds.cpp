#include "gradwire/train/federated/federation_rounds.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <numeric>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gradwire/base/error.h"
#include "gradwire/base/refuse.h"
#include "gradwire/federated/quantizer_sequence.h"
#include "gradwire/train/federated/run_state.h"

namespace gradwire {
namespace {

using Json = nlohmann::json;

constexpr int kAbandonedInARow = 20;

}  // namespace

GlobalModelOptions server_options(const FederationPlan& plan) {
  GlobalModelOptions options = plan.server;
  options.seed = federated::RunSeeds::of(plan.seed).updates;
  options.normalizes = plan.partial == federated::Partial::normalize;
  return options;
}

std::uint64_t local_seed(const FederationPlan& plan) {
  return federated::RunSeeds::of(plan.seed).training;
}

std::vector<std::int64_t> training_samples(const HeldOut& clients) {
  std::vector<std::int64_t> samples;
  for (std::int64_t client = 0; client < clients.train.clients(); ++client)
    samples.push_back(std::ssize(clients.train[client]));
  return samples;
}

std::vector<float> sent_values(const FederationPlan& plan, const GlobalModel& model) {
  const std::span<const float> values = model.values();
  std::vector<float> sent(values.begin(), values.end());
  if (plan.sends_bf16)
    for (float& value : sent) value = static_cast<float>(c10::BFloat16(value));
  return sent;
}

FederationRounds::FederationRounds(const FederationPlan& plan, const FederatedTensors& initial,
                                   std::vector<std::int64_t> samples,
                                   std::vector<std::unique_ptr<federated::ClientTrainer>> trainers)
    : plan_(plan),
      model_(initial.parameters, initial.averaged, server_options(plan)),
      rounds_(make_rounds(std::move(samples), !trainers.empty())),
      proximal_{.mu = plan.proximal} {
  if (!trainers.empty()) updates_.emplace(std::move(trainers));
}

federated::SimulatedRounds FederationRounds::make_rounds(std::vector<std::int64_t> samples,
                                                         bool trains) {
  if (const auto& secure = plan_.round.secure)
    value_or_throw(federated::check_contributors(secure->policy, plan_.server.update.keep));
  federated::SimulatedWork work{.epochs = static_cast<int>(plan_.local.epochs),
                                .partial = plan_.partial,
                                .server_rate = plan_.server_rate};
  work.model_bytes = static_cast<double>(model_.values().size() * (plan_.sends_bf16 ? 2 : 4));
  if (!trains) {
    work.update_bytes = [this](int bits) {
      return static_cast<double>(packed_bytes(shape_, bits));
    };
  }
  const std::uint64_t seed = federated::RunSeeds::of(plan_.seed).devices;
  return {plan_.round, {plan_.devices, std::move(samples), seed}, work, plan_.seed};
}

const federated::Round& FederationRounds::next_round(const federated::UpdateQuantizer& quantizer,
                                                     double proximal) {
  shape_ = {quantizer.elements(), federated::Metrics::kElements};
  if (!updates_) return rounds_.next(none_, {}, model_.update_bits());
  const std::vector<float> sent = sent_values(plan_, model_);
  federated::UpdateRules rules = model_.rules(quantizer);
  rules.proximal = proximal;
  updates_->set_round(rounds_.number(), sent, rules);
  return rounds_.next(*updates_, shape_, model_.update_bits());
}

FederationRound FederationRounds::next() {
  const federated::UpdateQuantizer quantizer = model_.quantizer(rounds_.number());
  const federated::Round& round = next_round(quantizer, proximal_.mu);
  FederationRound result{.record = round.record(), .proximal = proximal_.mu};
  result.up_bytes = rounds_.up_bytes();
  result.down_bytes = rounds_.down_bytes();
  abandoned_ = result.record.is_abandoned ? abandoned_ + 1 : 0;
  if (abandoned_ == kAbandonedInARow) {
    throw Exception(ErrorKind::aborted,
                    fmt::format("{} rounds in a row were abandoned, the last one because {}: lower "
                                "round.least, or ask more clients",
                                kAbandonedInARow, result.record.reason));
  }
  if (result.record.is_abandoned) return result;
  if (!updates_) {
    model_.skip();
    return result;
  }
  result.metrics = model_.apply(round.sum(), round.weight(), quantizer);
  if (plan_.adapts_proximal)
    proximal_.observe(result.metrics.training_loss / static_cast<double>(result.metrics.clients));
  return result;
}

std::vector<federated::DeviceClass> FederationRounds::classes() const {
  const federated::SimulatedClients& clients = rounds_.clients();
  std::vector<double> times;
  for (federated::ClientId client = 0; client < clients.size(); ++client)
    times.push_back(std::chrono::duration<double>(clients.compute_time(client)).count());
  return federated::classes_of(times);
}

int FederationRounds::largest_sum_bits() const {
  if (plan_.round.selection == federated::Selection::proportional)
    return federated::sum_bits(plan_.server.update.bits, plan_.round.use);
  std::vector<std::int64_t> samples;
  for (const federated::ClientRecord& one : records()) samples.push_back(one.samples);
  std::ranges::sort(samples, std::greater());
  const auto count = std::min<std::ptrdiff_t>(std::ssize(samples), plan_.round.use);
  const std::int64_t most =
      std::accumulate(samples.begin(), samples.begin() + count, std::int64_t{0});
  return federated::sum_bits(plan_.server.update.bits, std::max<std::int64_t>(most, 1));
}

void FederationRounds::save(const std::filesystem::path& path) {
  Json clients = Json::array();
  for (const federated::ClientRecord& one : records()) clients.push_back(to_json(one));
  Json run = {{"number", rounds_.number()},
              {"time_ns", rounds_.now().time_since_epoch().count()},
              {"proximal", to_json(proximal_)},
              {"clients", std::move(clients)}};
  save_checkpoint(model_, path, std::move(run), plan_.configuration);
}

void FederationRounds::load(const std::filesystem::path& path) {
  const Json run = load_checkpoint(model_, path, plan_.configuration);
  std::vector<federated::ClientRecord> clients;
  for (const Json& one : run.at("clients")) clients.push_back(client_record_of(one));
  if (clients.size() != records().size()) {
    refuse("{} is of {} clients, this federation of {}", path.string(), clients.size(),
           records().size());
  }
  rounds_.resume(run.at("number"), Time(Duration(run.at("time_ns").get<std::int64_t>())),
                 std::move(clients));
  proximal_ = proximal_of(run.at("proximal"));
}

}  // namespace gradwire
