#include <set>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gradwire/recipe/federated_run.h"
#include "gradwire/recipe/federated_serve.h"
#include "gradwire/train/checkpoint/safetensors.h"
#include "tests/support/error_of.h"
#include "tests/support/idx_files.h"
#include "tests/support/temporary_folder.h"
#include "tests/train/federated/small_federation.h"

/// Every key of a configuration of `gradwire federate`, in `simulate` and in `serve`: another value
/// changes what the key is for, or is refused with an error that names the key.
namespace gradwire::test {
namespace {

using nlohmann::ordered_json;
using recipe::FederatedConfig, recipe::FederatedUse;
using Settings = std::vector<std::string>;

/// A change of a key shows in a part of the outcome; it is "refused", or "error" for a value that
/// is not known.
struct FederatedKey {
  std::string path;
  std::string changed;  ///< JSON; FOLDER is the folder of the test.
  std::string simulated, served;
  Settings with;  ///< The settings that give the key something to do.
};

const std::string kConvnet = R"(model={"name": "convnet", "hidden": 4, "channels": 2})";
const std::string kResnet = R"(model={"name": "resnet", "channels": 2, "groups": 2})";
const std::string kText = R"(data={"name": "text", "path": "FOLDER/text", "context": 8})";
const std::string kGpt = R"(model={"name": "gpt", "width": 8, "heads": 2, "layers": 1,)"
                         R"( "vocabulary": 258})";
const Settings kWords{kText, kGpt, R"(partition={"clients": 12, "held_out": 0.2})"};
const Settings kSynthetic{R"(data={"name": "synthetic_clients", "clients": 12, "held_out": 0.2})",
                          "model=null", "partition=null", "data.path=null"};

std::vector<FederatedKey> keys_of_models_and_data() {
  const std::string file = "\"FOLDER/net.safetensors\"";
  return {{"model.name", "\"convnet\"", "model", "model"},
          {"model.hidden", "5", "model", "model"},
          {"model.layers", "3", "model", "model"},
          {"model.dropout", "0.5", "model", "description"},
          {"model.channels", "3", "model", "model", {kConvnet}},
          {"model.blocks", "2", "model", "model", {kResnet}},
          {"model.groups", "1", "model", "description", {kResnet}},
          {"model.width", "16", "model", "model", kWords},
          {"model.heads", "4", "model", "description", kWords},
          {"model.vocabulary", "300", "model", "model", kWords},
          {"model.tie_word_embeddings", "true", "refused", "refused", kWords},
          {"model.file", file, "model", "model"},
          {"model.buffers",
           "[\"*bias\"]",
           "refused",
           "model",
           {"model={\"file\": " + file + "}", "server.learning_rate=0.5"}},
          {"data.name", "\"unknown\"", "error", "error"},
          {"data.path", "\"FOLDER/other\"", "model", "refused"},
          {"data.limit", "60", "clients", "description"},
          {"data.context", "4", "model", "description", kWords},
          {"data.uneven", "\"pad\"", "refused", "refused"},
          {"data.prefetch", "2", "refused", "refused"},
          // FedProx's definition: it moves all logits of a client alike, and so no label.
          {"data.alpha", "0", "nothing", "description", kSynthetic},
          {"data.beta", "0", "model", "description", kSynthetic},
          {"data.clients", "8", "clients", "description", kSynthetic},
          {"data.held_out", "0.5", "clients", "description", kSynthetic},
          {"data.seed", "2", "model", "description", kSynthetic},
          {"partition.kind", "\"iid\"", "clients", "description"},
          {"partition.clients", "10", "clients", "description"},
          {"partition.held_out", "0.5", "clients", "description"},
          {"partition.shards", "1", "model", "description", {"partition.kind=shards"}},
          {"partition.alpha", "100", "clients", "description", {"partition.kind=dirichlet"}},
          {"partition.classes", "1", "clients", "description", {"partition.kind=classes"}},
          {"seed", "2", "model", "model"}};
}

std::vector<FederatedKey> keys_of_rounds() {
  const std::string alone = R"(secure={"neighbours": 3, "threshold": 2})";
  const Settings many{"round.ask=12", "round.use=12", "secure.dropping=0", "secure.colluding=0"};
  return {{"rounds", "2", "asked", "complete"},
          {"round.ask", "8", "asked", "policy"},
          {"round.use", "3", "used", "policy"},
          {"round.least", "4", "reason", "policy", {"devices.drop=0.5", "rounds=1"}},
          {"round.window_s", "1", "seconds", "policy"},
          {"round.gather_s", "5", "refused", "policy"},
          {"round.exchange_s", "0.3", "used", "policy"},
          {"round.select", "\"fair\"", "clients", "policy"},
          {"secure", "true", "up_bytes", "policy"},
          {"secure.neighbours", "2", "up_bytes", "policy", {alone}},
          {"secure.threshold", "3", "down_bytes", "policy", {alone, "devices.drop=0.3"}},
          {"secure.active", "true", "up_bytes", "policy", {"secure={\"dropping\": 0}"}},
          {"secure.dropping", "0.3", "up_bytes", "policy", many},
          {"secure.colluding", "0.3", "up_bytes", "policy", many},
          {"update.bits", "9", "up_bytes", "model"},
          {"update.rotate", "true", "model", "plan"},
          {"update.mask", "0.5", "up_bytes", "elements"},
          {"update.clip", "0.001", "clipped", "plan"},
          {"download", "\"bf16\"", "down_bytes", "plan"},
          {"devices.compute_s", "5", "seconds", "refused"},
          {"devices.up", "\"1KB/s\"", "seconds", "refused"},
          {"devices.down", "\"1KB/s\"", "seconds", "refused"},
          {"devices.eligible", "0.6", "clients", "refused"},
          {"devices.drop", "0.5", "dropped", "refused"},
          {"devices.stragglers", "1", "steps", "refused", {"local.epochs=4"}},
          {"devices.stragglers", "0.1", "refused", "refused", {"local.epochs=1"}},
          {"server_rate", "\"3KB/s\"", "seconds", "refused"},
          {"evaluate_every", "2", "accuracy", "refused"}};
}

/// Those of an optimizer; `section`: "local" or "server".
std::vector<FederatedKey> keys_of_federated_optimizer(const std::string& section,
                                                      const std::string& served) {
  const std::string name = section + ".optimizer=";
  const auto key = [&](const std::string& own, const std::string& changed, Settings with = {}) {
    return FederatedKey{section + "." + own, changed, "model", served, std::move(with)};
  };
  const Settings ranger{name + "ranger_lars", section + ".lookahead_steps=2"};
  return {key("optimizer", "\"adam\""),
          key("learning_rate", "0.2"),
          key("momentum", "0.5"),
          key("nesterov", "true", {section + ".momentum=0.5"}),
          key("weight_decay", "0.1"),
          key("beta1", "0.5", {name + "adam"}),
          key("beta2", "0.5", {name + "adam"}),
          key("epsilon", "0.5", {name + "adam"}),
          key("trust_coefficient", "0.5", {name + "lars"}),
          key("lookahead_steps", "3", ranger),
          key("lookahead_rate", "0.1", ranger)};
}

std::vector<FederatedKey> all_federated_keys() {
  std::vector<FederatedKey> all{
      {"local.epochs", "3", "steps", "plan"},
      {"local.batch_size", "3", "steps", "plan"},
      {"local.proximal", "10", "model", "plan"},
      {"local.partial", "\"drop\"", "clients", "plan", {"local.epochs=4"}}};
  for (const auto& keys :
       {keys_of_models_and_data(), keys_of_rounds(), keys_of_federated_optimizer("local", "plan"),
        keys_of_federated_optimizer("server", "model")})
    all.insert(all.end(), keys.begin(), keys.end());
  return all;
}

// --- the schema ---

ordered_json with_settings(ordered_json config, const Settings& settings) {
  for (const std::string& setting : settings) recipe::apply_setting(config, setting);
  return config;
}

std::string error_of_configuration(const ordered_json& config) {
  try {
    recipe::parse_federated_config(config, FederatedUse::client);
  } catch (const Exception& error) {
    return error.what();
  }
  return "";
}

/// Which keys an object has, as the error for an unknown one lists them.
void add_federated_keys(const std::string& object, const Settings& settings,
                        std::set<std::string>& known) {
  const std::string prefix = object.empty() ? "" : object + ".";
  ordered_json config = with_settings(ordered_json::object(), settings);
  recipe::apply_setting(config, prefix + "unknown_key_of_this_test=1");
  const std::string message = error_of_configuration(config);
  const auto list = message.find("known: ");
  ASSERT_NE(list, std::string::npos) << object << ": " << message;
  std::stringstream names(message.substr(list + 7));
  for (std::string name; std::getline(names >> std::ws, name, ',');) known.insert(prefix + name);
}

TEST(EveryFederatedOption, IsInTheTableOfThisTest) {
  std::set<std::string> known{"model.file", "model.buffers"};  // Removed before the others.
  add_federated_keys("", {}, known);
  for (const auto* object : {"partition", "round", "local", "server", "update", "devices"})
    add_federated_keys(object, {}, known);
  for (const std::string kind : {"shards", "dirichlet", "classes"})
    add_federated_keys("partition", {"partition.kind=" + kind}, known);
  for (const std::string section : {"local", "server"})
    for (const std::string name : {"adam", "lars", "ranger_lars"})
      add_federated_keys(section, {section + ".optimizer=" + name}, known);
  add_federated_keys("secure", {"secure.neighbours=3", "secure.threshold=2"}, known);
  add_federated_keys("secure", {}, known);
  add_federated_keys("data", {}, known);
  add_federated_keys("data", {"data.name=text"}, known);
  add_federated_keys("data", {"data.name=synthetic_clients"}, known);
  add_federated_keys("model", {}, known);
  for (const std::string name : {"mlp", "resnet"})
    add_federated_keys("model", {"model.name=" + name}, known);
  add_federated_keys("model", {"data.name=text", "model.name=gpt"}, known);
  known.insert("secure");                             // Also a flag.
  std::erase_if(known, [&](const std::string& key) {  // Objects.
    const auto next = known.upper_bound(key + ".");
    return key != "secure" && next != known.end() && next->starts_with(key + ".");
  });
  std::set<std::string> tested;
  for (const FederatedKey& key : all_federated_keys()) tested.insert(key.path);
  std::vector<std::string> differing;
  std::ranges::set_symmetric_difference(known, tested, std::back_inserter(differing));
  EXPECT_THAT(differing, testing::IsEmpty());
}

TEST(EveryFederatedOption, IsSuggestedForOneThatIsNotKnown) {
  for (const auto& [wrong, right] :
       {std::pair{"round.uses=3", "did you mean \"use\"?"},
        std::pair{"server_rat=3", "did you mean \"server_rate\"?"},
        std::pair{"local.learning_rte=3", "did you mean \"learning_rate\"?"}}) {
    const std::string message =
        error_of_configuration(with_settings(ordered_json::object(), {wrong}));
    EXPECT_THAT(message, testing::HasSubstr(right));
  }
}

TEST(EveryFederatedOption, RefusesSecureAggregationThatNoRoundCouldHave) {
  const auto error = [](FederatedUse use, const Settings& settings) {
    const auto config = with_settings({{"partition", {{"clients", 12}}}}, settings);
    return error_of([&] { recipe::parse_federated_config(config, use); });
  };
  const Settings odd{"round.use=5", R"(secure={"neighbours": 3, "threshold": 2})"};
  const Settings many{"round.use=10", R"(secure={"neighbours": 64, "threshold": 33})"};
  const Settings more{"round.use=40", R"(secure={"neighbours": 30, "threshold": 16})"};
  const Settings drawn{"round.use=10", "round.select=proportional", "secure=true"};
  for (const FederatedUse use : {FederatedUse::simulate, FederatedUse::serve}) {
    EXPECT_THAT(error(use, odd), testing::HasSubstr("a threshold of 2 with 4 neighbours"));
    EXPECT_THAT(error(use, many), testing::HasSubstr("a threshold of 33 with 9 neighbours"));
    EXPECT_THAT(error(use, drawn), testing::HasSubstr("round.select \"proportional\""));
  }
  EXPECT_THAT(error(FederatedUse::simulate, more), testing::HasSubstr("11 among 12 clients"));
  EXPECT_EQ(error(FederatedUse::serve, more), "no error") << "any number may be enrolled";
}

// --- the outcomes ---

std::string bytes_of(std::span<const float> values) {
  const auto bytes = std::as_bytes(values);
  return std::to_string(
      std::hash<std::string_view>()({reinterpret_cast<const char*>(bytes.data()), bytes.size()}));
}

class FederatedOptionRuns {
 public:
  FederatedOptionRuns() {
    write_image_data(folder_.path(), 120, 30);
    std::filesystem::create_directory(folder_ / "other");
    write_image_data(folder_ / "other", 110, 20);
    std::string text;
    for (int i = 0; i < 1600; ++i) text += static_cast<char>('a' + (i * i + i / 7) % 23);
    write_file(folder_ / "text", text);
    torch::manual_seed(9);
    const torch::nn::Sequential net(torch::nn::Flatten(), torch::nn::Linear(784, 4),
                                    torch::nn::ReLU(), torch::nn::Linear(4, 10));
    std::vector<NamedTensor> tensors;
    const auto module = recipe::make_module(
        recipe::parse_federated_config(config({}, FederatedUse::simulate), FederatedUse::simulate));
    for (const auto& [name, tensor] : federated_tensors(*module.module).parameters)
      tensors.push_back({name, torch::rand_like(tensor) / 10});
    save_safetensors(folder_ / "net.safetensors", tensors);
  }

  ordered_json config(const Settings& settings, FederatedUse use) const {
    auto json = ordered_json::parse(R"({
      "model": {"name": "mlp", "hidden": 4}, "rounds": 3, "data": {"path": "FOLDER"},
      "partition": {"kind": "dirichlet", "clients": 12, "held_out": 0.2},
      "round": {"ask": 6, "use": 4, "least": 2, "window_s": 60, "exchange_s": 60},
      "local": {"epochs": 2, "batch_size": 2, "learning_rate": 0.1}, "update": {"bits": 8},
      "devices": {"compute_s": [10, 0.5], "up": ["20KB/s", 0.5], "drop": 0.1, "stragglers": 0.3}
    })");
    json = with_settings(json, settings);
    if (use == FederatedUse::serve) {
      json.erase("devices");
      json["data"].erase("path");
    }
    for (const char* key : {"data", "model", "partition"})
      if (json[key].is_null()) json.erase(key);
    if (json["data"].contains("path") && json["data"]["path"].is_null()) json["data"].erase("path");
    std::string text = json.dump();
    for (auto at = text.find("FOLDER"); at != std::string::npos; at = text.find("FOLDER"))
      text.replace(at, 6, folder_.path().string());
    return ordered_json::parse(text);
  }

  /// The outcome by what it shows; with "error", the message.
  const ordered_json& outcome(const ordered_json& config, FederatedUse use) {
    const auto [place, is_new] = outcomes_.emplace(config.dump() + name_of(use), ordered_json());
    if (!is_new) return place->second;
    try {
      const FederatedConfig parsed = recipe::parse_federated_config(config, use);
      place->second = use == FederatedUse::serve ? served(parsed) : simulated(parsed);
    } catch (const Exception& error) {
      place->second = {{"error", error.what()}};
    }
    return place->second;
  }

  static std::string name_of(FederatedUse use) {
    return use == FederatedUse::serve ? "serve" : "simulate";
  }

 private:
  static ordered_json simulated(const FederatedConfig& config) {
    const auto federation = recipe::make_federation(config, 1);
    const FederationResult result = federation->run();
    ordered_json json = recipe::result_json(result);
    json["model"] = bytes_of(values_of(*federation));
    const ordered_json rounds = json["rounds"];
    for (const ordered_json& round : rounds)
      for (const auto& [key, value] : round.items()) json[key].push_back(value);
    json["reason"] = json.value("reason", ordered_json());
    return json;
  }

  ordered_json served(const FederatedConfig& config) {
    std::filesystem::remove_all(folder_ / "run");
    const auto model = recipe::make_served_model(config, {.folder = folder_ / "run"});
    const federated::RoundPolicy& policy = config.round;
    ordered_json json{
        {"description", model->description()},
        {"policy",
         {policy.ask, policy.use, policy.least, policy.gather.count(), policy.window.count(),
          policy.exchange.count(), federated::name_of(policy.selection)}}};
    if (policy.secure) {
      json["policy"].push_back({policy.secure->policy.neighbours, policy.secure->policy.threshold,
                                policy.secure->policy.active});
    }
    for (std::int64_t round = 1; round <= 2; ++round) {
      const auto work = model->begin(round);
      json["plan"].push_back(ordered_json::parse(work.plan));
      json["elements"] = work.shape.elements;
      end_round(*model, round, work);
    }
    json["complete"] = model->is_complete();
    json["model"] = bytes_of(model->model().values());
    return json;
  }

  /// With the update of one client, which is the same for each model.
  static void end_round(ServedModel& model, std::int64_t round,
                        const federated::ServerModel::Work& work) {
    const auto quantizer = model.model().quantizer(round);
    std::vector<float> update(model.model().values().size());
    for (std::size_t i = 0; i < update.size(); ++i)
      update[i] = static_cast<float>(0.01 * std::sin(static_cast<double>(i + round)));
    const federated::LocalResult result{.update = update, .steps = 1};
    const auto sum = value_or_throw(federated::encode(result, {.round = round},
                                                      {.bits = work.update_bits, .weight = 1},
                                                      model.model().rules(quantizer)));
    federated::EndedRound ended{.record = {.number = round}, .sum = &sum, .weight = 1};
    model.on_ended(ended);
  }

  TemporaryFolder folder_;
  std::map<std::string, ordered_json> outcomes_;
};

/// An error names a key, or the section that is refused as a whole.
bool names_key(const std::string& message, const std::string& path) {
  return message.find(path) != std::string::npos ||
         message.find(path.substr(0, path.find('.'))) != std::string::npos;
}

void expect_change(FederatedOptionRuns& runs, const FederatedKey& key, FederatedUse use) {
  const std::string& shows = use == FederatedUse::serve ? key.served : key.simulated;
  const std::string what = FederatedOptionRuns::name_of(use) + ", " + key.path;
  const ordered_json usual = runs.outcome(runs.config(key.with, use), use);
  ordered_json config = runs.config(key.with, use);
  // After the folder has its name, and the keys of the other use are gone.
  ordered_json change = runs.config({key.path + "=" + key.changed}, FederatedUse::simulate);
  ordered_json *to = &config, *from = &change;
  std::stringstream names(key.path);
  for (std::string name; std::getline(names, name, '.');) {
    if (to->is_null()) *to = ordered_json::object();
    to = &(*to)[name];
    from = &(*from)[name];
  }
  *to = *from;
  const ordered_json changed = runs.outcome(config, use);
  if (shows == "refused" || shows == "error") {
    ASSERT_TRUE(changed.contains("error")) << what << " is ignored";
    EXPECT_TRUE(names_key(changed["error"], key.path)) << what << ": " << changed["error"];
    return;
  }
  if (shows == "nothing") return;
  ASSERT_FALSE(usual.contains("error")) << what << ": " << usual;
  ASSERT_FALSE(changed.contains("error")) << what << ": " << changed;
  ASSERT_TRUE(usual.contains(shows)) << what << ": " << usual.dump().substr(0, 2000);
  EXPECT_NE(changed.value(shows, ordered_json()), usual.value(shows, ordered_json()))
      << what << " has no effect on " << shows;
}

/// All but what follows from training.
ordered_json protocol_of(const FederationResult& result) {
  ordered_json json = recipe::result_json(result);
  for (ordered_json& round : json["rounds"])
    for (const char* key : {"accuracy", "loss", "steps", "clipped", "training_loss"})
      round.erase(key);
  for (const char* key : {"mean_accuracy", "worst_tenth_accuracy"}) json["fairness"].erase(key);
  for (ordered_json& one : json["fairness"]["classes"]) one.erase("accuracy");
  for (ordered_json& one : json["clients"]) one.erase("accuracy");
  return json;
}

TEST(EveryFederatedOption, OfRoundsDoesTheSameWithoutTraining) {
  const FederatedOptionRuns runs;
  const Settings wide{"update.mask=0.5", "update.rotate=true", "server_rate=3KB/s"};
  for (const Settings& settings : {Settings{},
                                   wide,
                                   {"round.select=proportional"},
                                   {"round.select=fair"},
                                   {"download=bf16", "partition.kind=power_law"},
                                   {"secure={\"dropping\": 0}"},
                                   {kResnet},
                                   {"devices.drop=0.6", "round.least=3"},
                                   kWords,
                                   kSynthetic}) {
    const FederatedConfig config = recipe::parse_federated_config(
        runs.config(settings, FederatedUse::simulate), FederatedUse::simulate);
    EXPECT_EQ(protocol_of(recipe::simulate_protocol(config)),
              protocol_of(recipe::make_federation(config, 1)->run()))
        << ordered_json(settings).dump();
  }
}

TEST(EveryFederatedOption, OfRoundsIsForMoreClientsThanSamplesWithoutTraining) {
  const FederatedOptionRuns runs;
  const auto config = recipe::parse_federated_config(
      runs.config({"partition.clients=500"}, FederatedUse::simulate), FederatedUse::simulate);
  const FederationResult result = recipe::simulate_protocol(config);
  ASSERT_EQ(result.clients.size(), 500u);
  for (const auto& one : result.clients) EXPECT_EQ(one.samples, 1);
  EXPECT_THAT(error_of([&] { recipe::make_federation(config, 1); }),
              testing::HasSubstr("500 clients share 120 samples"));
}

TEST(EveryFederatedOption, DoesWhatItSaysOrIsRefused) {
  FederatedOptionRuns runs;
  for (const FederatedKey& key : all_federated_keys()) {
    expect_change(runs, key, FederatedUse::simulate);
    expect_change(runs, key, FederatedUse::serve);
  }
}

}  // namespace
}  // namespace gradwire::test
