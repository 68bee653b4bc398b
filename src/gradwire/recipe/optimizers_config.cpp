#include "gradwire/recipe/optimizers_config.h"

#include "gradwire/base/error.h"

namespace gradwire {
namespace {

constexpr std::int64_t kMaxSamples = 1'000'000'000;

double usual_rate(const std::string& name) {
  if (name == "adam") return 1e-3;
  if (name == "lars") return 1;  // The trust coefficient makes the step small.
  if (name == "lamb") return 0.01;
  return 0.05;
}

void read_moments(JsonObject& json, OptimizerConfig& optimizer) {
  if (optimizer.name == "lamb") optimizer.epsilon = 1e-6;
  optimizer.beta1 = json.number("beta1", optimizer.beta1, 0, 1);
  optimizer.beta2 = json.number("beta2", optimizer.beta2, 0, 1);
  optimizer.epsilon = json.number("epsilon", optimizer.epsilon, 0, 1);
}

void read_momentum(JsonObject& json, OptimizerConfig& optimizer) {
  optimizer.momentum = json.number("momentum", optimizer.momentum, 0, 1);
  if (optimizer.name == "sgd") optimizer.nesterov = json.flag("nesterov", optimizer.nesterov);
  if (optimizer.name != "lars") return;
  optimizer.trust_coefficient =
      json.number("trust_coefficient", optimizer.trust_coefficient, 1e-12, 1e6);
}

void read_scaling(JsonObject& json, OptimizerConfig& optimizer) {
  optimizer.scaling =
      json.choice("learning_rate_scaling", optimizer.scaling, {"none", "linear", "sqrt"});
  if (optimizer.scaling == "none") return;
  optimizer.base_batch_size = json.integer("base_batch_size", 0, 0, kMaxSamples);
  if (optimizer.base_batch_size > 0) return;
  throw Exception(ErrorKind::invalid_argument,
                  "optimizer.learning_rate_scaling needs optimizer.base_batch_size: the batch size "
                  "that optimizer.learning_rate was tuned for");
}

}  // namespace

OptimizerConfig read_optimizer(JsonObject json) {
  OptimizerConfig optimizer;
  optimizer.name = json.choice("name", optimizer.name, {"sgd", "adam", "lars", "lamb"});
  optimizer.learning_rate = json.number("learning_rate", usual_rate(optimizer.name), 0, 1e6);
  if (optimizer.name == "adam" || optimizer.name == "lamb") {
    read_moments(json, optimizer);
  } else {
    read_momentum(json, optimizer);
  }
  optimizer.weight_decay = json.number("weight_decay", optimizer.weight_decay, 0, 1e6);
  read_scaling(json, optimizer);
  json.refuse_unknown();
  return optimizer;
}

}  // namespace gradwire
