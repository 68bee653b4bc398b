#include "gradwire/recipe/federated_run.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <span>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gradwire/base/clock.h"
#include "gradwire/base/random.h"
#include "gradwire/base/refuse.h"
#include "gradwire/base/units.h"
#include "gradwire/data/synthetic_clients.h"
#include "gradwire/federated/update_quantizer.h"
#include "gradwire/recipe/federated_data.h"
#include "gradwire/recipe/models.h"
#include "gradwire/recipe/optimizers.h"
#include "gradwire/train/checkpoint/safetensors.h"
#include "gradwire/train/federated/dense_classifier.h"
#include "gradwire/train/federated/federation_rounds.h"
#include "gradwire/train/federated/global_model.h"

namespace gradwire::recipe {
namespace {

/// Logistic regression of the synthetic data.
torch::nn::Sequential linear_model() {
  return torch::nn::Sequential(torch::nn::Linear(kSyntheticFeatures, kSyntheticClasses),
                               torch::nn::LogSoftmax(1));
}

/// Copies the values of a file to the module's tensors of the same names.
void load_values(torch::nn::Module& module, const std::string& file) {
  const torch::NoGradGuard no_grad;
  const SafetensorsFile content = load_safetensors(file);
  const FederatedTensors tensors = federated_tensors(module);
  for (const auto* list : {&tensors.parameters, &tensors.averaged}) {
    for (const auto& [name, tensor] : *list) {
      const auto found = content.tensors.find(name);
      if (found == content.tensors.end() || found->second.sizes() != tensor.sizes())
        refuse("{} has no tensor {} of this model's shape", file, name);
      torch::Tensor(tensor).copy_(found->second);
    }
  }
}

}  // namespace

TrainableModule make_module(const FederatedConfig& config) {
  if (!config.names_model) {
    refuse(
        "{} has the values of a model, and not its code: name one of gradwire's in model.name, or "
        "train with FederatedClient",
        config.model_file);
  }
  torch::manual_seed(config.seed);
  torch::nn::Sequential net = config.synthetic.enabled ? linear_model() : make_model(config.model);
  if (!config.model_file.empty()) load_values(*net, config.model_file);
  TrainableModule made{
      .module = net.ptr(),
      .forward = [net](const torch::Tensor& inputs) mutable { return net->forward(inputs); },
      .loss = [](const torch::Tensor& outputs,
                 const torch::Tensor& targets) { return torch::nll_loss_nd(outputs, targets); },
      .draws_random_numbers = config.model.dropout > 0};
  if (config.synthetic.enabled || (config.model.name == "mlp" && config.model.dropout == 0)) {
    made.differentiate = [dense = DenseClassifier(net->parameters())](
                             const torch::Tensor& inputs, const torch::Tensor& targets) mutable {
      return dense.differentiate(inputs, targets);
    };
  }
  return made;
}

namespace {

OptimizerFactory factory_of(const OptimizerConfig& config) {
  return [config](const std::vector<NamedTensor>& parameters) {
    return make_optimizer(config, parameters);
  };
}

}  // namespace

FederationPlan plan_of(const FederatedConfig& config, int threads) {
  return {.rounds = config.rounds,
          .round = config.round,
          .local = {.epochs = config.local.epochs,
                    .batch_size = config.local.batch_size,
                    .optimizer = factory_of(config.local.optimizer)},
          .server = {.optimizer = factory_of(config.server), .update = config.update},
          .partial = config.local.partial,
          .proximal = config.local.proximal,
          .adapts_proximal = config.local.adapts_proximal,
          .sends_bf16 = config.sends_bf16,
          .devices = config.devices,
          .server_rate = config.server_rate,
          .threads = threads,
          .seed = config.seed,
          .configuration = config.text};
}

namespace {

double mean_loss_of(const FederationRound& round) {
  if (round.tested) return round.tested->mean_loss();
  if (!round.has_test_data && round.metrics.evaluated > 0)
    return round.metrics.loss / static_cast<double>(round.metrics.evaluated);
  return std::numeric_limits<double>::quiet_NaN();
}

}  // namespace

std::unique_ptr<Federation> make_federation(const FederatedConfig& config, int threads) {
  DividedData divided = divide(config);
  auto federation =
      std::make_unique<Federation>(plan_of(config, threads), std::move(divided.data),
                                   std::move(divided.clients), [&] { return make_module(config); });
  if (divided.test) federation->test_on(std::move(*divided.test), config.evaluate_every);
  return federation;
}

FederationResult simulate_protocol(const FederatedConfig& config) {
  const TrainableModule module = make_module(config);
  FederationRounds rounds(plan_of(config), federated_tensors(*module.module),
                          samples_of_clients(config), {});
  FederationResult result;
  while (!rounds.ended()) result.rounds.push_back(rounds.next());
  result.clients.assign(rounds.records().begin(), rounds.records().end());
  result.classes = rounds.classes();
  return result;
}

namespace {

/// The range of updates is not known before the first round.
std::string first_round_text(const FederatedConfig& config) {
  const int bits = federated::first_round(config.update).bits;
  if (bits == config.update.bits) return "";
  return fmt::format("; in the first round {} more", bits - config.update.bits);
}

}  // namespace

std::string widths_text(const FederatedConfig& config, const Federation& federation) {
  return fmt::format(
             "an element of an update has {} bits, one of a sum at most {}, which each client "
             "uploads",
             config.update.bits, federation.largest_sum_bits()) +
         first_round_text(config) + secure_text(config);
}

std::string secure_text(const FederatedConfig& config) {
  if (!config.round.secure) return "";
  const federated::SecurePolicy& policy = config.round.secure->policy;
  return fmt::format("\nsecure aggregation: {} neighbours, threshold {}{}", policy.neighbours,
                     policy.threshold, policy.active ? ", with signed keys and lists" : "");
}

double accuracy_of(const FederationRound& round) {
  if (round.tested) return round.tested->accuracy();
  if (!round.has_test_data && round.metrics.evaluated > 0) return round.metrics.accuracy();
  return std::numeric_limits<double>::quiet_NaN();
}

std::string round_text(const FederationRound& round) {
  const federated::RoundRecord& record = round.record;
  const double time = seconds(record.ended - record.began);
  if (record.is_abandoned)
    return fmt::format("round {} abandoned after {:.1f} s: {}", record.number, time, record.reason);
  const double accuracy = accuracy_of(round);
  const std::string reached =
      std::isnan(accuracy)
          ? std::string()
          : fmt::format("  accuracy {:.2f} %  loss {:.4f}", 100 * accuracy, mean_loss_of(round));
  return fmt::format(
      "round {}{}  {} asked, {} ready, {} used, {} dropped  {:.1f} s  up {}, down {}",
      record.number, reached, record.asked, record.ready, record.used, record.dropped, time,
      format_bytes(static_cast<std::size_t>(round.up_bytes)),
      format_bytes(static_cast<std::size_t>(round.down_bytes)));
}

namespace {

using Json = nlohmann::ordered_json;

/// null if it is not finite.
Json number(double value) {
  return std::isfinite(value) ? Json(value) : Json();
}

}  // namespace

Json round_json(const FederationRound& round) {
  const federated::RoundRecord& record = round.record;
  Json row = {{"round", record.number},
              {"accuracy", number(accuracy_of(round))},
              {"loss", number(mean_loss_of(round))},
              {"asked", record.asked},
              {"ready", record.ready},
              {"used", record.used},
              {"stopped", record.stopped},
              {"dropped", record.dropped},
              {"abandoned", record.is_abandoned},
              {"up_bytes", round.up_bytes},
              {"down_bytes", round.down_bytes},
              {"seconds", seconds(record.ended - record.began)},
              {"steps", round.metrics.steps},
              {"clipped", round.metrics.clipped},
              {"training_loss", round.metrics.clients > 0
                                    ? number(round.metrics.training_loss /
                                             static_cast<double>(round.metrics.clients))
                                    : Json()},
              {"proximal", round.proximal}};
  if (record.is_abandoned) row["reason"] = record.reason;
  return row;
}

namespace {

std::vector<double> accuracies(const FederationResult& result) {
  std::vector<double> values;
  for (const auto& one : result.by_client)
    if (one.samples > 0) values.push_back(one.accuracy());
  return values;
}

Json class_json(const FederationResult& result) {
  Json list = Json::array();
  if (result.classes.empty()) return list;
  const auto classes = federated::by_class(result.clients, result.classes);
  constexpr std::array kNames{"slow", "middle", "fast"};
  for (std::size_t i = 0; i < classes.size(); ++i) {
    federated::Metrics sum;
    for (std::size_t k = 0; k < result.by_client.size(); ++k) {
      if (static_cast<std::size_t>(result.classes[k]) != i) continue;
      sum.evaluated += result.by_client[k].samples;
      sum.correct += result.by_client[k].correct;
    }
    list.push_back({{"devices", kNames[i]},
                    {"clients", classes[i].clients},
                    {"sample_share", classes[i].sample_share},
                    {"counted_share", classes[i].counted_share},
                    {"accuracy", sum.evaluated > 0 ? Json(sum.accuracy()) : Json()},
                    {"compute_seconds", classes[i].compute_seconds},
                    {"up_bytes", classes[i].up_bytes},
                    {"down_bytes", classes[i].down_bytes}});
  }
  return list;
}

double mean_of(const std::vector<double>& values) {
  return values.empty() ? std::numeric_limits<double>::quiet_NaN()
                        : std::accumulate(values.begin(), values.end(), 0.0) /
                              static_cast<double>(values.size());
}

Json clients_json(const FederationResult& result) {
  Json list = Json::array();
  for (std::size_t i = 0; i < result.clients.size(); ++i) {
    const federated::ClientRecord& one = result.clients[i];
    const bool is_tested = i < result.by_client.size() && result.by_client[i].samples > 0;
    list.push_back({{"samples", one.samples},
                    {"eligible", one.eligible},
                    {"asked", one.asked},
                    {"counted", one.counted},
                    {"accuracy", is_tested ? Json(result.by_client[i].accuracy()) : Json()},
                    {"compute_seconds", one.compute_seconds},
                    {"up_bytes", one.up_bytes},
                    {"down_bytes", one.down_bytes}});
  }
  return list;
}

}  // namespace

nlohmann::ordered_json result_json(const FederationResult& result) {
  Json rounds = Json::array();
  for (const FederationRound& round : result.rounds) rounds.push_back(round_json(round));
  const std::vector<double> values = accuracies(result);
  const Json worst = values.empty() ? Json() : Json(federated::worst_tenth(values));
  return {{"rounds", std::move(rounds)},
          {"fairness",
           {{"jain", federated::jain_index(result.clients)},
            {"mean_accuracy", number(mean_of(values))},
            {"worst_tenth_accuracy", worst},
            {"classes", class_json(result)}}},
          {"clients", clients_json(result)}};
}

std::string result_text(const FederationResult& result) {
  double up = 0, down = 0, time = 0;
  int abandoned = 0;
  std::int64_t clipped = 0;
  for (const FederationRound& round : result.rounds) {
    up += round.up_bytes;
    down += round.down_bytes;
    abandoned += round.record.is_abandoned;
    clipped += round.metrics.clipped;
    time += seconds(round.record.ended - round.record.began);
  }
  std::string text = fmt::format(
      "{} rounds, {} abandoned, {:.0f} s of virtual time; {} up and {} down over all clients\n",
      result.rounds.size(), abandoned, time, format_bytes(static_cast<std::size_t>(up)),
      format_bytes(static_cast<std::size_t>(down)));
  if (clipped > 0) text += fmt::format("{} elements of updates were clipped\n", clipped);
  text += fmt::format("fairness: Jain's index of how often clients counted {:.2f}",
                      federated::jain_index(result.clients));
  const std::vector<double> values = accuracies(result);
  if (!values.empty()) {
    text += fmt::format("; accuracy by client {:.1f} %, of the worst tenth {:.1f} %",
                        100 * mean_of(values), 100 * federated::worst_tenth(values));
  }
  return text + "\n";
}

Target reached(const std::vector<FederationRound>& rounds, double accuracy) {
  Target target{.rounds = std::numeric_limits<double>::quiet_NaN()};
  double before = 0, number_before = 0, up = 0, down = 0;
  double committed = 0;
  for (const FederationRound& round : rounds) {
    target.up_bytes += round.up_bytes;
    target.down_bytes += round.down_bytes;
    committed += !round.record.is_abandoned;
    const double now = accuracy_of(round);
    if (round.record.is_abandoned || std::isnan(now)) continue;
    if (now >= accuracy) {
      const double part = now > before ? (accuracy - before) / (now - before) : 1;
      const double share = std::clamp(part, 0.0, 1.0);
      target.rounds = number_before + share * (committed - number_before);
      target.up_bytes = up + share * (target.up_bytes - up);
      target.down_bytes = down + share * (target.down_bytes - down);
      return target;
    }
    before = now;
    number_before = committed;
    up = target.up_bytes;
    down = target.down_bytes;
  }
  return target;
}

}  // namespace gradwire::recipe
