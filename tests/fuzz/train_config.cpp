#include "gradwire/recipe/train_config.h"

#include <nlohmann/json.hpp>

#include "gradwire/base/error.h"
#include "tests/fuzz/target.h"

namespace gradwire::fuzz {

void repair(std::string&) {}

namespace {

void check(const recipe::TrainConfig& config) {
  expect(config.epochs >= 1 && config.batch_size >= 1 && config.accumulation_steps >= 1,
         "there is something to train");
  expect(config.model.hidden >= 1 && config.model.width >= 1 && config.model.heads >= 1,
         "models have a size");
  expect(config.model.width % config.model.heads == 0, "heads divide the width");
  expect(config.parallel.bucket_cap_mb > 0, "buckets hold something");
  expect(config.zero.stage >= 0 && config.zero.stage <= 3, "ZeRO has its stages");
  for (const int ranks : {1, 3, 1024}) {
    try {
      const std::int64_t each = recipe::batch_size_per_replica(config, ranks);
      expect(each >= 1 && each * ranks == config.batch_size, "each rank gets its part");
    } catch (const Exception& e) {
      expect(e.kind() == ErrorKind::invalid_argument, "a refusal is the user's to mend");
    }
  }
}

/// Reads the text as load_train_config() reads a file.
void read(std::string_view text) {
  const std::size_t end = std::min(text.find('\0'), text.size());
  auto json = nlohmann::ordered_json::parse(text.substr(0, end), nullptr, false, true);
  if (json.is_discarded()) return;
  for (text.remove_prefix(end); !text.empty();) {
    text.remove_prefix(1);
    const std::size_t size = std::min(text.find('\0'), text.size());
    recipe::apply_setting(json, text.substr(0, size));
    text.remove_prefix(size);
  }
  const recipe::TrainConfig config = recipe::parse_train_config(json);
  check(config);
  expect(nlohmann::json::parse(config.model_text).is_object(), "the model is kept as JSON");
}

}  // namespace

/// A file, followed by a zero byte and the settings of a command line.
std::vector<std::string> seeds() {
  const std::string zero(1, '\0');
  const std::vector<std::string> all = {
      "{}",
      R"({"data": {"name": "text", "context": 32}, "model": {"name": "gpt", "width": 64,
              "layers": 2, "heads": 4, "vocabulary": 256, "dropout": 0.1}, // a comment
              "activation_checkpointing": {"number_checkpoints": 2}, "parallel": {"overlap":
              "backward", "bucket_cap_mb": 4}, "gradient_clipping": 1})",
      R"({"model": {"name": "resnet", "channels": 16, "blocks": 2, "groups": 4}, "optimizer":
              {"name": "adam", "learning_rate": 0.001}, "schedule": {"warmup_epochs": 0.5,
              "decay": "cosine", "final_fraction": 0.1}, "epochs": 2, "seed": 3})",
      R"({"zero": {"stage": 2}, "precision": {"compute": "bf16", "parameters": "bf16"},
              "checkpoint_every": 10, "checkpoint_keep": 3, "resume": "auto", "trace": "t.json"})",
      R"({"hogwild": {"threads": 2, "oversubscribe": true}, "optimizer": {"name": "adagrad",
              "epsilon": 1e-8}})",
      R"({"codec": "int8", "parallel": {"codec_warmup_steps": 5}, "gradient_accumulation": 2})",
      R"({"local_steps": {"steps": 8}, "gradient_accumulation_steps": 4,
              "model": {"name": "mlp", "hidden": 32}})" +
          zero + "model.hidden=64" + zero + "data.path=/tmp" + zero + "seed=7"};
  for (const std::string& seed : all) read(seed);  // Throws unless it is valid.
  return all;
}

/// A configuration is either refused with the project's own error, or can be used for training.
void test(std::string_view input) {
  try {
    read(input);
  } catch (const Exception& e) {
    expect(e.kind() == ErrorKind::invalid_argument, "a refusal is the user's to mend");
  }
}

}  // namespace gradwire::fuzz
