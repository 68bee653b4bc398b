#include <algorithm>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gradwire/base/error.h"
#include "gradwire/recipe/train_config.h"
#include "tests/support/idx_files.h"
#include "tests/support/temporary_folder.h"
#include "tests/train/subprocess.h"

/// Every key of a configuration, with every strategy: another value changes what the key is for, or
/// is refused with an error that names the key.
namespace gradwire::test {
namespace {

using nlohmann::ordered_json;
using Settings = std::vector<std::string>;

struct Strategy {
  std::string name;
  Settings settings;
  bool has_images = false;
};

std::vector<Strategy> strategies() {
  const std::string pipeline = "mesh.pipeline=2", parts = "pipeline.micro_batches=2";
  return {{"data parallel", {}},
          {"ZeRO 1", {"zero.stage=1"}},
          {"ZeRO 2", {"zero.stage=2"}},
          {"ZeRO 3", {"zero.stage=3"}},
          {"local steps", {"local_steps.steps=2"}},
          {"pipeline", {"mesh.pipeline=4", parts}},
          {"pipeline x data", {pipeline, parts}},
          {"pipeline x ZeRO 1", {pipeline, parts, "zero.stage=1"}},
          {"pipeline x ZeRO 3", {pipeline, parts, "zero.stage=3"}},
          {"tensor x data", {"mesh.tensor=2"}},
          {"spatial x data", {"mesh.spatial=2"}, true},
          {"tied", {"model.tie_word_embeddings=true"}}};
}

struct Key {
  std::string path;
  std::string changed;  ///< JSON.
  std::string shows;    ///< The change: "model", "losses", "sent", "files", "tests" or "order".
  Settings with;        ///< The settings that give the key something to do.
  bool has_images = false;
};

std::vector<Key> keys_of_the_run() {
  return {{"epochs", "2", "losses"},
          {"batch_size", "8", "losses"},
          {"accumulation_steps", "2", "order"},
          {"precision", "\"bf16\"", "model"},
          {"gradient_clipping", "0.01", "model"},
          {"seed", "4", "model"},
          {"evaluate_every", "1", "tests", {"epochs=2"}},
          {"checkpoint", "\"other\"", "files"},
          {"checkpoint_every", "2", "files"},
          {"checkpoint_folder", "\"elsewhere\"", "files", {"checkpoint_every=2"}},
          {"checkpoint_keep", "1", "files", {"checkpoint_every=1"}},
          {"data.limit", "32", "losses"},
          {"data.context", "4", "losses"},
          {"data.uneven", "\"pad\"", "losses", {"data.limit=40"}}};
}

const char* const kResnet = R"(model={"name": "resnet", "channels": 2, "groups": 2})";

std::vector<Key> keys_of_models() {
  return {{"model.name", "\"transformer\"", "model"},
          {"model.width", "16", "model"},
          {"model.layers", "3", "model"},
          {"model.heads", "4", "losses"},
          {"model.vocabulary", "300", "model"},
          {"model.dropout", "0.5", "losses"},
          {"model.tie_word_embeddings", "true", "model"},
          {"model.channels", "4", "model", {}, true},
          {"model.hidden", "8", "model", {}, true},
          {"model.blocks", "2", "model", {kResnet}, true},
          {"model.groups", "1", "losses", {kResnet}, true},
          {"activation_checkpointing.partition_activations", "true", "refusal"}};
}

std::vector<Key> keys_of_optimizers() {
  const std::string adam = "optimizer.name=adam", linear = "optimizer.learning_rate_scaling=linear";
  const std::string base = "optimizer.base_batch_size=4", ranger = "optimizer.name=ranger_lars";
  return {{"optimizer.name", "\"adam\"", "model"},
          {"optimizer.learning_rate", "0.2", "model"},
          {"optimizer.momentum", "0.5", "model"},
          {"optimizer.nesterov", "true", "model"},
          {"optimizer.weight_decay", "0.1", "model"},
          {"optimizer.groups", R"([{"match": "*", "learning_rate": 0.2}])", "model"},
          {"optimizer.beta1", "0.5", "model", {adam}},
          {"optimizer.beta2", "0.5", "model", {adam}},
          {"optimizer.epsilon", "0.5", "model", {adam}},
          {"optimizer.trust_coefficient", "0.5", "model", {"optimizer.name=lars"}},
          {"optimizer.lookahead_steps", "2", "model", {ranger, "optimizer.lookahead_rate=0.1"}},
          {"optimizer.lookahead_rate", "0.1", "model", {ranger, "optimizer.lookahead_steps=2"}},
          {"optimizer.learning_rate_scaling", "\"sqrt\"", "model", {base, linear}},
          {"optimizer.base_batch_size", "8", "model", {base, linear}},
          {"schedule.warmup_epochs", "1", "model"},
          {"schedule.decay", "\"cosine\"", "model"},
          {"schedule.final_fraction", "0.5", "model", {"schedule.decay=cosine"}}};
}

std::vector<Key> keys_of_exchanges() {
  const std::string codec = "parallel.codec=int8", all = "parallel.codec_min_elements=1";
  return {{"parallel.bucket_cap_mb", "0.0005", "order"},
          {"parallel.find_unused_parameters", "true", "sent"},
          {"parallel.codec", "\"int8\"", "sent", {all}},
          {"parallel.codec_min_elements", "1000000", "sent", {codec, all}},
          {"parallel.codec_warmup_steps", "100", "sent", {codec, all}},
          {"zero.stage", "2", "order"},
          {"zero.reduce_bucket_size", "100", "order"},
          {"zero.stage3_param_persistence_threshold", "0", "order"},
          {"local_steps.steps", "2", "model"},
          {"local_steps.outer_learning_rate", "0.5", "model"},
          {"local_steps.outer_momentum", "0.5", "model"},
          {"local_steps.fragments", "2", "model"},
          {"local_steps.overlap_steps", "1", "model"},
          {"local_steps.mixing", "0.5", "model"},
          {"local_steps.codec", "\"int8\"", "sent"}};
}

std::vector<Key> keys_of_meshes() {
  return {{"pipeline.micro_batches", "4", "order"},
          {"pipeline.schedule", "\"zero_bubble\"", "order"},
          {"pipeline.weights", "\"newest\"", "model", {"pipeline.schedule=pipedream"}},
          {"pipeline.cut", "[1, 3]", "order"},
          {"pipeline.codec.forward", "\"int8\"", "sent"},
          {"pipeline.codec.backward", "\"int8\"", "sent"},
          {"tensor.plan", R"({"head": "replicated"})", "sent"},
          {"spatial.height", "1", "refusal"},
          {"spatial.width", "2", "sent", {"mesh.spatial=4"}}};
}

/// Keys of which such a run shows nothing, and where they are tested.
const std::map<std::string, std::string> kElsewhere{
    {"data.name", "TextModel, FashionMnist"},
    {"data.path", "TextModel, FashionMnist"},
    {"data.prefetch", "Prefetch: batches are made ahead"},
    {"resume", "ResumeTest"},
    {"devices", "DevicesCommand"},
    {"engine", "mpi.jobs"},
    {"inside", "InsideCommand"},
    {"trace", "TraceTrain"},
    {"activation_checkpointing.number_checkpoints", "ActivationConfig, TextModel: memory"},
    {"parallel.broadcast_buffers", "DataParallelBuffers: the program's models have no buffers"},
    {"parallel.check_finite", "DataParallelFinite"},
    {"parallel.overlap", "Overlap, StepEngine: it changes times alone"},
    {"zero.overlap_comm", "ZeroOptionsOfAConfiguration"},
    {"zero.stage3_prefetch_bucket_size", "ZeroUnits: gathers ahead"},
    {"zero.offload_optimizer.device", "ZeroMemory"},
    {"zero.offload_optimizer.nvme_path", "ZeroMemory"},
    {"pipeline.recompute", "PipelineRecompute: memory"},
    {"pipeline.costs.forward_ms", "Generators: schedules for costs"},
    {"pipeline.costs.input_ms", "Generators"},
    {"pipeline.costs.weight_ms", "Generators"},
    {"pipeline.costs.transfer_ms", "Generators"},
    {"pipeline.costs.latency_ms", "Generators"},
    {"precision.compute", "MixedPrecision"},
    {"precision.parameters", "MixedPrecision"},
    {"fp16.enabled", "LossScaling"},
    {"fp16.loss_scale", "LossScaling"},
    {"fp16.initial_scale_power", "LossScaling"},
    {"fp16.loss_scale_window", "LossScaling"},
    {"fp16.hysteresis", "LossScaling"},
    {"fp16.consecutive_hysteresis", "LossScaling"},
    {"fp16.min_loss_scale", "LossScaling"},
    {"mesh.data", "the strategies here"},
    {"mesh.pipeline", "the strategies here"},
    {"mesh.tensor", "the strategies here"},
    {"mesh.spatial", "the strategies here"}};

std::vector<Key> all_keys() {
  std::vector<Key> all;
  for (const auto& keys : {keys_of_the_run(), keys_of_models(), keys_of_optimizers(),
                           keys_of_exchanges(), keys_of_meshes()}) {
    all.insert(all.end(), keys.begin(), keys.end());
  }
  return all;
}

/// Which keys an object has, as the error for an unknown one lists them.
void add_known(const std::string& object, const Settings& settings, std::set<std::string>& known) {
  ordered_json config = ordered_json::object();
  for (const std::string& setting : settings) recipe::apply_setting(config, setting);
  const std::string prefix = object.empty() ? "" : object + ".";
  recipe::apply_setting(config, prefix + "unknown_key_of_this_test=1");
  std::string message;
  try {
    recipe::parse_train_config(config);
  } catch (const Exception& e) {
    message = e.what();
  }
  const auto list = message.find("known: ");
  ASSERT_NE(list, std::string::npos) << object << ": " << message;
  std::stringstream names(message.substr(list + 7));
  for (std::string name; std::getline(names >> std::ws, name, ',');) known.insert(prefix + name);
}

std::set<std::string> schema() {
  std::set<std::string> known;
  const std::string text = "data.name=text", gpt = "model.name=gpt", pipeline = "mesh.pipeline=2";
  add_known("", {}, known);
  add_known("data", {text}, known);
  add_known("model", {text, gpt}, known);
  add_known("model", {}, known);
  add_known("model", {"model.name=resnet"}, known);
  for (const std::string name : {"sgd", "adam", "lars", "ranger_lars"}) {
    add_known("optimizer",
              {"optimizer.name=" + name, "optimizer.learning_rate_scaling=linear",
               "optimizer.base_batch_size=1"},
              known);
  }
  add_known("schedule", {"schedule.decay=cosine"}, known);
  add_known("fp16", {"precision=fp16"}, known);
  add_known("pipeline", {pipeline, "pipeline.cut=[1, 1]"}, known);
  add_known("pipeline.costs",
            {pipeline, "pipeline.costs.forward_ms=[1]", "pipeline.costs.input_ms=[1]",
             "pipeline.costs.weight_ms=[1]", "pipeline.costs.transfer_ms=[1]"},
            known);
  add_known("pipeline.codec", {pipeline}, known);
  add_known("tensor", {"mesh.tensor=2", text, gpt}, known);
  add_known("spatial", {"mesh.spatial=2"}, known);
  for (const auto* object : {"activation_checkpointing", "parallel", "zero",
                             "zero.offload_optimizer", "local_steps", "mesh", "precision"}) {
    add_known(object, {}, known);
  }
  // Objects whose keys are in the schema themselves.
  std::erase_if(known, [&](const std::string& key) {
    const auto next = known.upper_bound(key + ".");
    return key != "precision" && next != known.end() && next->starts_with(key + ".");
  });
  return known;
}

TEST(EveryOption, IsInTheTableOfThisTest) {
  const std::set<std::string> known = schema();
  std::set<std::string> tested;
  for (const Key& key : all_keys()) tested.insert(key.path);
  for (const auto& [key, place] : kElsewhere) tested.insert(key);
  EXPECT_EQ(known, tested);
}

/// Runs of configurations, each once.
class Runs {
 public:
  std::size_t add(const ordered_json& config) {
    const auto [place, is_new] = place_.emplace(config.dump(), configs_.size());
    if (is_new) configs_.push_back(config);
    return place->second;
  }
  void run_all(const TemporaryFolder& folder) {
    write_file(folder / "runs.json", configs_.dump());
    const auto programs = own_program().parent_path();
    const auto finished = run({programs / "gradwire", "run", "-n", "4", "--",
                               programs / "train_rank", "option", folder.path()},
                              {{"GRADWIRE_ALGORITHM", "all_reduce=ring"}});
    ASSERT_EQ(finished.status, 0) << finished.output;
    std::ifstream stream(folder / "results.json");
    results_ = ordered_json::parse(stream);
  }
  const ordered_json& result(std::size_t run) const { return results_.at(run); }

 private:
  std::map<std::string, std::size_t> place_;
  ordered_json configs_ = ordered_json::array();
  ordered_json results_;
};

ordered_json base_config(const TemporaryFolder& folder, bool has_images) {
  ordered_json config{{"batch_size", 16}, {"optimizer", {{"learning_rate", 0.1}}}};
  if (has_images) {
    config["data"] = {{"path", folder.path()}, {"limit", 48}};
    config["model"] = {{"name", "convnet"}, {"channels", 2}, {"hidden", 4}};
  } else {
    config["data"] = {{"name", "text"}, {"context", 8}, {"limit", 48}, {"path", folder / "text"}};
    config["model"] = {
        {"name", "gpt"}, {"layers", 2}, {"width", 8}, {"heads", 2}, {"vocabulary", 258}};
  }
  return config;
}

/// An error names a key, or the object that does not go with the strategy.
bool names(const std::string& message, const std::string& path) {
  return message.find(path.substr(0, path.find('.'))) != std::string::npos ||
         message.find(path.substr(path.rfind('.') + 1)) != std::string::npos;
}

/// False for a key that the strategy sets, one that needs another model, and exchanges of one
/// replica, which has none.
bool applies(const Key& key, const Strategy& strategy) {
  const auto sets = [&](const std::string& start) {
    return std::ranges::any_of(
        strategy.settings, [&](const std::string& setting) { return setting.starts_with(start); });
  };
  const bool is_exchange = key.path.starts_with("parallel.") || key.path.starts_with("zero.");
  if (sets(key.path + "=") || (is_exchange && sets("mesh.pipeline=4"))) return false;
  return key.has_images || !strategy.has_images || !key.path.starts_with("model.");
}

TEST(EveryOption, DoesWhatItSaysOrIsRefused) {
  const TemporaryFolder folder;
  write_image_data(folder.path(), 64, 16);
  std::string text;
  for (int i = 0; i < 700; ++i) text += static_cast<char>('a' + (i * i + i / 7) % 23);
  write_file(folder / "text", text);
  struct Case {
    const Strategy& strategy;
    const Key& key;
    std::size_t usual, changed;
  };
  Runs runs;
  std::vector<Case> cases;
  const auto all = strategies();
  const auto keys = all_keys();
  std::vector<std::pair<std::size_t, std::size_t>> alike;  // They train the same.
  for (const Strategy& strategy : all) {
    ordered_json plain = base_config(folder, strategy.has_images);
    for (const std::string& setting : strategy.settings) recipe::apply_setting(plain, setting);
    const std::size_t first = runs.add(plain);
    recipe::apply_setting(plain, "data.prefetch=2");
    alike.emplace_back(first, runs.add(plain));
    recipe::apply_setting(plain, "epochs=2");
    const std::size_t untested = runs.add(plain);
    recipe::apply_setting(plain, "evaluate_every=1");
    alike.emplace_back(untested, runs.add(plain));
    for (const Key& key : keys) {
      if (!applies(key, strategy)) continue;
      ordered_json config = base_config(folder, strategy.has_images || key.has_images);
      for (const std::string& setting : strategy.settings) recipe::apply_setting(config, setting);
      for (const std::string& setting : key.with) recipe::apply_setting(config, setting);
      const std::size_t usual = runs.add(config);
      recipe::apply_setting(config, key.path + "=" + key.changed);
      cases.push_back({strategy, key, usual, runs.add(config)});
    }
  }
  ASSERT_NO_FATAL_FAILURE(runs.run_all(folder));
  for (const auto& [first, second] : alike) {
    for (const auto* what : {"model", "losses", "sent", "files"}) {
      EXPECT_EQ(runs.result(first).at(what), runs.result(second).at(what));
    }
  }
  for (const Case& each : cases) {
    const std::string what = each.strategy.name + ", " + each.key.path;
    const ordered_json& usual = runs.result(each.usual);
    const ordered_json& changed = runs.result(each.changed);
    if (changed.contains("refused")) {
      const auto message = changed["refused"].get<std::string>();
      bool is_named = names(message, each.key.path);
      for (const auto& with : each.key.with)
        is_named |= names(message, with.substr(0, with.find('=')));
      EXPECT_TRUE(is_named) << what << ": " << message;
      continue;
    }
    ASSERT_FALSE(usual.contains("refused")) << what << ": " << usual;
    EXPECT_NE(changed.value(each.key.shows, ordered_json()),
              usual.value(each.key.shows, ordered_json()))
        << what << " has no effect on " << each.key.shows;
  }
}

}  // namespace
}  // namespace gradwire::test
