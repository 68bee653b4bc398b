#include "gradwire/federated/remote/client_plan.h"

#include <charconv>
#include <limits>

#include <nlohmann/json.hpp>

#include "gradwire/base/json_fields.h"
#include "gradwire/federated/remote/identity.h"

namespace gradwire::federated {
namespace {

using Ordered = nlohmann::ordered_json;

constexpr std::int64_t kMostEpochs = 1'000'000, kMostSamples = 1'000'000'000;
/// Clients of a round, at most.
constexpr std::int64_t kMostDraws = 1'000'000;
constexpr double kMostRange = 1e30;

/// JSON's numbers have 53 bits in many programs.
std::uint64_t seed_in(JsonFields& fields, std::string_view key) {
  const std::string text = fields.text(key);
  std::uint64_t seed = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
  if (error != std::errc() || end != text.data() + text.size())
    fields.refuse(key, "a seed: a decimal number of 64 bits, as a text");
  return seed;
}

Digest digest_in(JsonFields& fields, std::string_view key) {
  Digest digest{};
  if (!from_hex(fields.text(key), digest)) fields.refuse(key, "a SHA-256: 64 hexadecimal digits");
  return digest;
}

QuantizerOptions update_in(JsonFields fields) {
  QuantizerOptions update;
  update.bits = fields.integer("bits", 2, 32);
  update.rotate = fields.flag("rotate");
  update.keep = fields.number("mask", 1e-6, 1);
  update.clip = fields.number("clip", 0, kMostRange);
  return update;
}

}  // namespace

std::string to_json(const ClientPlan& plan) {
  return Ordered{{"epochs", plan.epochs},
                 {"batch_size", plan.batch_size},
                 {"optimizer", Ordered::parse(plan.optimizer)},
                 {"proximal", plan.proximal},
                 {"order_seed", std::to_string(plan.order_seed)},
                 {"partial", name_of(plan.partial)},
                 {"update",
                  {{"bits", plan.update.bits},
                   {"rotate", plan.update.rotate},
                   {"mask", plan.update.keep},
                   {"clip", plan.update.clip}}},
                 {"range", plan.range},
                 {"round_seed", std::to_string(plan.round_seed)},
                 {"rounding_seed", std::to_string(plan.rounding_seed)},
                 {"download", plan.is_bf16 ? "bf16" : "float32"},
                 {"draws", plan.draws},
                 {"model", to_hex(plan.model)}}
      .dump();
}

Result<ClientPlan> client_plan_from_json(std::string_view text) {
  return read_json_fields(text, "the server's plan", [](JsonFields fields) {
    ClientPlan plan;
    plan.epochs = fields.integer_or("epochs", 1, 1, kMostEpochs);
    plan.batch_size = fields.integer_or("batch_size", 0, 0, kMostSamples);
    plan.optimizer = fields.json_text("optimizer");
    plan.proximal = fields.number("proximal", 0, kMostRange);
    plan.order_seed = seed_in(fields, "order_seed");
    plan.partial = partial_named(fields.text("partial"));
    plan.update = update_in(fields.object("update"));
    plan.range = fields.number("range", std::numeric_limits<double>::min(), kMostRange);
    plan.round_seed = seed_in(fields, "round_seed");
    plan.rounding_seed = seed_in(fields, "rounding_seed");
    plan.is_bf16 = fields.choice_or("download", "float32", {"float32", "bf16"}) == "bf16";
    plan.draws = fields.integer_or("draws", 0, 0, kMostDraws);
    plan.model = digest_in(fields, "model");
    return plan;
  });
}

std::string to_json(const ModelDescription& description) {
  Ordered tensors = Ordered::array();
  for (const ModelDescription::Shape& one : description.tensors)
    tensors.push_back({{"name", one.name}, {"shape", one.sizes}});
  return Ordered{{"tensors", std::move(tensors)},
                 {"configuration", Ordered::parse(description.configuration)}}
      .dump();
}

Result<ModelDescription> model_description_from_json(std::string_view text) {
  return read_json_fields(text, "the server's description", [](JsonFields fields) {
    ModelDescription description;
    for (JsonFields& one : fields.objects("tensors", 1)) {
      description.tensors.push_back(
          {one.text("name"), one.integers("shape", 0, std::numeric_limits<std::int64_t>::max())});
    }
    description.configuration = fields.json_text("configuration");
    return description;
  });
}

}  // namespace gradwire::federated
