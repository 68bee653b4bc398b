#include "gradwire/train/federated/federation.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gradwire/base/cpu.h"
#include "gradwire/base/error.h"
#include "gradwire/base/random.h"
#include "gradwire/base/refuse.h"

namespace gradwire {
namespace {

using Json = nlohmann::json;

constexpr int kAbandonedInARow = 20;
constexpr std::uint64_t kServerSeed = 1, kClientsSeed = 2, kLocalSeed = 3;

int threads_of(const FederationPlan& plan) {
  if (plan.local.draws_random_numbers) return 1;
  return plan.threads > 0 ? plan.threads : usable_cores();
}

std::vector<std::int64_t> samples_of(const std::vector<ClientSamples>& clients) {
  std::vector<std::int64_t> samples;
  for (const ClientSamples& one : clients) samples.push_back(std::ssize(one.training));
  return samples;
}

Json to_json(const std::vector<federated::ClientRecord>& records) {
  Json list = Json::array();
  for (const federated::ClientRecord& one : records) {
    list.push_back({one.samples, one.eligible, one.asked, one.counted, one.compute_seconds,
                    one.up_bytes, one.down_bytes});
  }
  return list;
}

std::vector<federated::ClientRecord> records_of(const Json& list) {
  std::vector<federated::ClientRecord> records;
  for (const Json& one : list)
    records.push_back({one[0], one[1], one[2], one[3], one[4], one[5], one[6]});
  return records;
}

}  // namespace

Federation::Federation(const FederationPlan& plan, DataSet data, std::vector<ClientSamples> clients,
                       const std::function<TrainableModule()>& make)
    : plan_(plan),
      data_(std::move(data)),
      clients_(std::move(clients)),
      proximal_(plan.proximal),
      threads_before_(at::get_num_threads()) {
  at::set_num_threads(1);  // One for each operation: its sums do not depend on the cores.
  plan_.local.seed = mixed_seed({plan_.seed, kLocalSeed});
  plan_.server.seed = mixed_seed({plan_.seed, kServerSeed});
  plan_.server.normalizes = plan_.partial == federated::Partial::normalize;
  std::vector<std::unique_ptr<federated::ClientTrainer>> trainers;
  const auto trainer = [&](TrainableModule module) {
    return std::make_unique<LocalTraining>(std::move(module), data_, clients_, plan_.local);
  };
  TrainableModule first = make();
  const FederatedTensors initial = federated_tensors(*first.module);
  model_ = std::make_unique<GlobalModel>(initial.parameters, initial.averaged, plan_.server);
  evaluator_ = trainer(std::move(first));
  for (int i = 0; i < threads_of(plan_); ++i) trainers.push_back(trainer(make()));
  updates_ = std::make_unique<federated::ComputedUpdates>(std::move(trainers));
  rounds_.emplace(make_rounds());
}

Federation::~Federation() {
  at::set_num_threads(threads_before_);
}

federated::SimulatedRounds Federation::make_rounds() const {
  const auto elements = model_->quantizer(1).elements();
  federated::SimulatedWork work{.epochs = static_cast<int>(plan_.local.epochs),
                                .partial = plan_.partial,
                                .server_rate = plan_.server_rate};
  work.model_bytes = static_cast<double>(model_->values().size() * (plan_.sends_bf16 ? 2 : 4));
  work.update_bytes = [elements](int bits) {
    return static_cast<double>(
        federated::ModularVector::packed_bytes(elements, bits) +
        federated::ModularVector::packed_bytes(federated::Metrics::kElements, 64));
  };
  const std::uint64_t seed = mixed_seed({plan_.seed, kClientsSeed});
  return {plan_.round, {plan_.devices, samples_of(clients_), seed}, work, plan_.seed};
}

void Federation::test_on(DataSet data, std::int64_t every) {
  test_samples_.resize(static_cast<std::size_t>(data.size));
  std::iota(test_samples_.begin(), test_samples_.end(), 0);
  test_ = std::move(data);
  test_every_ = every;
}

LocalTraining::Evaluated Federation::test() {
  return evaluator_->evaluate(model_->values(), test_samples_, *test_);
}

std::vector<float> Federation::sent_model() const {
  const std::span<const float> values = model_->values();
  std::vector<float> sent(values.begin(), values.end());
  if (plan_.sends_bf16)
    for (float& value : sent) value = static_cast<float>(c10::BFloat16(value));
  return sent;
}

FederationRound Federation::next() {
  const std::int64_t number = rounds_->number();
  const federated::UpdateQuantizer quantizer = model_->quantizer(number);
  const std::vector<float> sent = sent_model();
  federated::UpdateRules rules = model_->rules(quantizer);
  rules.proximal = proximal_.mu();
  updates_->set_round(number, sent, rules);
  const auto bytes = [&] {
    double up = 0, down = 0;
    for (const auto& one : rounds_->records()) up += one.up_bytes, down += one.down_bytes;
    return std::pair(up, down);
  };
  const auto [up, down] = bytes();
  const federated::Round& round = rounds_->next(
      *updates_, {quantizer.elements(), federated::Metrics::kElements}, model_->update_bits());
  FederationRound result{.record = round.record(), .proximal = rules.proximal};
  const auto [up_now, down_now] = bytes();
  result.up_bytes = up_now - up;
  result.down_bytes = down_now - down;
  abandoned_ = result.record.is_abandoned ? abandoned_ + 1 : 0;
  if (abandoned_ == kAbandonedInARow) {
    throw Exception(ErrorKind::aborted,
                    fmt::format("{} rounds in a row were abandoned, the last one because {}: lower "
                                "round.least, or ask more clients",
                                kAbandonedInARow, result.record.reason));
  }
  if (result.record.is_abandoned) return result;
  result.metrics = model_->apply(round, quantizer);
  if (plan_.adapts_proximal)
    proximal_.add(result.metrics.training_loss / static_cast<double>(result.metrics.clients));
  if (test_ && (model_->version() % test_every_ == 0 || ended())) result.tested = test();
  return result;
}

FederationResult Federation::run(const std::function<void(const FederationRound&)>& on_round) {
  FederationResult result;
  while (!ended()) {
    result.rounds.push_back(next());
    if (on_round) on_round(result.rounds.back());
  }
  result.clients.assign(rounds_->records().begin(), rounds_->records().end());
  std::vector<double> times;
  for (federated::ClientId client = 0; client < rounds_->clients().size(); ++client)
    times.push_back(std::chrono::duration<double>(rounds_->clients().compute_time(client)).count());
  result.classes = federated::classes_of(times);
  result.by_client = evaluate_clients();
  return result;
}

std::vector<LocalTraining::Evaluated> Federation::evaluate_clients() {
  std::vector<LocalTraining::Evaluated> evaluated;
  if (std::ranges::all_of(clients_, [](const ClientSamples& one) { return one.held_out.empty(); }))
    return evaluated;
  for (const ClientSamples& one : clients_)
    evaluated.push_back(evaluator_->evaluate(model_->values(), one.held_out, data_));
  return evaluated;
}

int Federation::largest_sum_bits() const {
  if (plan_.round.selection == federated::Selection::proportional)
    return federated::sum_bits(plan_.server.update.bits, plan_.round.use);
  std::vector<std::int64_t> samples = samples_of(clients_);
  std::ranges::sort(samples, std::greater());
  const auto count = std::min<std::ptrdiff_t>(std::ssize(samples), plan_.round.use);
  const std::int64_t most =
      std::accumulate(samples.begin(), samples.begin() + count, std::int64_t{0});
  return federated::sum_bits(plan_.server.update.bits, std::max<std::int64_t>(most, 1));
}

void Federation::save(const std::filesystem::path& path) {
  const std::vector<federated::ClientRecord> records(rounds_->records().begin(),
                                                     rounds_->records().end());
  const Json run = {{"number", rounds_->number()},
                    {"time_ns", rounds_->now().time_since_epoch().count()},
                    {"proximal", proximal_.mu()},
                    {"clients", to_json(records)}};
  model_->save(path, run.dump());
}

void Federation::load(const std::filesystem::path& path) {
  const Json run = Json::parse(model_->load(path));
  auto records = records_of(run.at("clients"));
  if (records.size() != clients_.size())
    refuse("{} is of {} clients, this federation of {}", path.string(), records.size(),
           clients_.size());
  rounds_->resume(run.at("number"), Time(Duration(run.at("time_ns").get<std::int64_t>())),
                  std::move(records));
  proximal_ = AdaptiveProximal(run.at("proximal"));
}

}  // namespace gradwire
