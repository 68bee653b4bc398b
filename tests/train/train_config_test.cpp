#include "gradwire/recipe/train_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gradwire/base/error.h"
#include "gradwire/step/step_plan.h"
#include "tests/support/idx_files.h"
#include "tests/support/temporary_folder.h"

namespace gradwire::test {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Exception& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid_argument);
    return error.what();
  }
  return "no error";
}

std::string error_of(const char* text) {
  return error_of([&] { recipe::parse_train_config(json::parse(text)); });
}

TEST(TrainConfig, EverythingHasADefault) {
  const auto config = recipe::parse_train_config(json::object());
  EXPECT_EQ(config.model.name, "convnet");
  EXPECT_EQ(config.optimizer.momentum, 0.9);
  // The defaults of `gradwire bench step`.
  const step::StepPlanOptions measured;
  EXPECT_EQ(config.parallel.bucket_cap_mb * (1 << 20), static_cast<double>(measured.limits.bytes));
  EXPECT_EQ(config.parallel.codec_min_elements,
            static_cast<std::int64_t>(measured.codec_min_elements));
  EXPECT_EQ(config.batch_size, 128);
}

TEST(TrainConfig, GroupsHaveTheOptimizersSettingsExceptTheirOwn) {
  const auto config = recipe::parse_train_config(json::parse(R"({"optimizer": {
    "name": "adam", "learning_rate": 0.01, "weight_decay": 0.1, "groups": [
      {"match": "*.bias", "weight_decay": 0}, {"match": ["head.*", "a*"], "beta1": 0.5}]}})"));
  const auto& groups = config.optimizer.groups;
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_THAT(groups[0].match, ElementsAre("*.bias"));
  EXPECT_EQ(groups[0].settings.weight_decay, 0);
  EXPECT_EQ(groups[0].settings.learning_rate, 0.01);
  EXPECT_THAT(groups[1].match, ElementsAre("head.*", "a*"));
  EXPECT_EQ(groups[1].settings.beta1, 0.5);
  EXPECT_EQ(groups[1].settings.weight_decay, 0.1);

  EXPECT_THAT(error_of(R"({"optimizer": {"groups": [{"weight_decay": 0}]}})"),
              HasSubstr("optimizer.groups[0].match"));
  EXPECT_THAT(error_of(R"({"optimizer": {"groups": [{"match": []}]}})"),
              HasSubstr("optimizer.groups[0].match"));
  EXPECT_THAT(error_of(R"({"optimizer": {"groups": [{"match": "*", "beta1": 0.5}]}})"),
              HasSubstr("\"beta1\""));
  EXPECT_THAT(error_of(R"({"optimizer": {"groups": [{"match": "*", "name": "adam"}]}})"),
              HasSubstr("\"name\""));
  EXPECT_THAT(error_of(R"({"optimizer": {"groups": {"match": "*"}}})"),
              HasSubstr("a list of objects"));
}

TEST(TrainConfig, ReadsEveryKey) {
  const auto config = recipe::parse_train_config(json::parse(R"({
    "model": {"name": "convnet", "channels": 4, "hidden": 32, "dropout": 0.5},
    "data": {"path": "somewhere", "limit": 100, "uneven": "pad", "prefetch": 2},
    "optimizer": {"name": "adam", "learning_rate": 0.01, "beta1": 0.8, "beta2": 0.9,
                  "epsilon": 1e-6, "weight_decay": 0.1},
    "schedule": {"warmup_epochs": 1.5, "decay": "cosine", "final_fraction": 0.1},
    "parallel": {"bucket_cap_mb": 2, "broadcast_buffers": false, "find_unused_parameters": true,
                 "overlap": "none", "codec": "top_k:0.02", "codec_min_elements": 10,
                 "codec_warmup_steps": 5, "check_finite": true},
    "precision": "bf16", "checkpoint_every": 10, "resume": "b.safetensors",
    "epochs": 3, "batch_size": 64, "accumulation_steps": 2, "seed": 7, "checkpoint": "a.safetensors"
  })"));
  EXPECT_EQ(config.model.channels, 4);
  EXPECT_EQ(config.model.dropout, 0.5);
  EXPECT_EQ(config.data.path, "somewhere");
  EXPECT_EQ(config.data.limit, 100);
  EXPECT_EQ(config.data.uneven, UnevenBatch::pad);
  EXPECT_EQ(config.optimizer.beta2, 0.9);
  EXPECT_EQ(config.schedule.warmup_epochs, 1.5);
  EXPECT_EQ(config.schedule.final_fraction, 0.1);
  EXPECT_TRUE(config.parallel.find_unused_parameters);
  EXPECT_FALSE(config.parallel.broadcast_buffers);
  EXPECT_EQ(config.parallel.overlap, step::Overlap::none);
  EXPECT_EQ(config.parallel.codec, "top_k:0.02");
  EXPECT_EQ(config.parallel.codec_min_elements, 10);
  EXPECT_EQ(config.parallel.codec_warmup_steps, 5);
  EXPECT_TRUE(config.parallel.check_finite);
  EXPECT_EQ(config.precision, Precision::bf16);
  EXPECT_EQ(config.checkpoint_every, 10);
  EXPECT_EQ(config.resume, "b.safetensors");
  EXPECT_EQ(config.accumulation_steps, 2);
  EXPECT_EQ(config.seed, 7u);
  EXPECT_EQ(config.checkpoint, "a.safetensors");
}

TEST(TrainConfig, UnknownKeysAreRefusedWithTheNearestRightOne) {
  EXPECT_THAT(error_of(R"({"epoch": 3})"), AllOf(HasSubstr("\"epoch\""), HasSubstr("\"epochs\"")));
  EXPECT_THAT(
      error_of(R"({"optimizer": {"momentun": 0.9}})"),
      AllOf(HasSubstr("key in optimizer"), HasSubstr("\"momentun\""), HasSubstr("\"momentum\"")));
}

TEST(TrainConfig, HogwildRefusesWhatItCannotGoWith) {
  const std::string sgd = R"("optimizer": {"momentum": 0})";
  const auto with = [&](const std::string& more, const std::string& optimizer) {
    return error_of((R"({"hogwild": {"threads": 2}, )" + optimizer + more + "}").c_str());
  };
  EXPECT_EQ(recipe::parse_train_config(json::parse(R"({"hogwild": {"threads": 3},
              "optimizer": {"name": "adagrad"}})"))
                .hogwild.threads,
            3);
  EXPECT_THAT(error_of(R"({"hogwild": {}})"), HasSubstr("optimizer.momentum 0.9"));
  EXPECT_THAT(error_of(R"({"hogwild": {}, "optimizer": {"name": "adam"}})"),
              AllOf(HasSubstr("optimizer.name \"adam\""), HasSubstr("\"adagrad\"")));
  EXPECT_THAT(with("", R"("optimizer": {"momentum": 0, "groups": [
                       {"match": "*.bias", "momentum": 0.5}]})"),
              HasSubstr("optimizer.momentum 0.5"));
  EXPECT_THAT(error_of(R"({"hogwild": {"threads": -1}})"), HasSubstr("hogwild.threads"));
  EXPECT_THAT(error_of(R"({"hogwild": {"thread": 1}})"), HasSubstr("\"threads\""));
  for (
      const auto& [key, more] : std::vector<std::pair<std::string, std::string>>{
          {"zero", R"("zero": {"stage": 1})"},
          {"servers", R"("servers": {})"},
          {"local_steps", R"("local_steps": {"steps": 2})"},
          {"mesh", R"("mesh": {"data": 1})"},
          {"codec", R"("codec": "int8")"},
          {"codec", R"("parallel": {"codec": "int8"})"},
          {"parallel.overlap", R"("parallel": {"overlap": "none"})"},
          {"parallel.broadcast_buffers", R"("parallel": {"broadcast_buffers": false})"},
          {"accumulation_steps", R"("gradient_accumulation": 2)"},
          {"gradient_clipping", R"("gradient_clipping": 1)"},
          {"precision \"fp16\"", R"("precision": "fp16")"},
          {"checkpoint_every", R"("checkpoint_every": 2)"},
          {"resume", R"("resume": "auto")"},
          {"trace", R"("trace": "trace.json")"},
          {"data.uneven", R"("data": {"uneven": "pad"})"},
          {"data.prefetch", R"("data": {"prefetch": 2})"},
          {"activation_checkpointing.number_checkpoints",
           R"("model": {"name": "resnet"}, "activation_checkpointing": {"number_checkpoints": 1})"},
          {"model.tie_word_embeddings", R"("data": {"name": "text"},
            "model": {"name": "gpt", "tie_word_embeddings": true})"}}) {
    EXPECT_THAT(with(", " + more, sgd), HasSubstr(key + " is incompatible with hogwild")) << more;
  }
}

TEST(TrainConfig, KeysOfAnotherChoiceAreUnknown) {
  EXPECT_THAT(error_of(R"({"optimizer": {"name": "adagrad", "momentum": 0.9}})"),
              AllOf(HasSubstr("\"momentum\""), HasSubstr("epsilon")));
  EXPECT_THAT(error_of(R"({"optimizer": {"name": "adam", "momentum": 0.9}})"),
              HasSubstr("\"momentum\""));
  EXPECT_THAT(error_of(R"({"model": {"name": "mlp", "channels": 3}})"), HasSubstr("\"channels\""));
}

TEST(TrainConfig, WrongTypesAndRangesNameThePathAndWhatIsRight) {
  EXPECT_THAT(error_of(R"({"epochs": "3"})"),
              HasSubstr("epochs is \"3\"; it must be a whole number"));
  EXPECT_THAT(error_of(R"({"epochs": 1.5})"), HasSubstr("epochs is 1.5"));
  EXPECT_THAT(error_of(R"({"epochs": 0})"), HasSubstr("from 1 to"));
  EXPECT_THAT(error_of(R"({"epochs": 99999999999999999999})"), HasSubstr("whole number"));
  EXPECT_THAT(error_of(R"({"optimizer": {"momentum": -1}})"),
              HasSubstr("optimizer.momentum is -1; it must be a number from 0 to 1"));
  EXPECT_THAT(error_of(R"({"parallel": {"broadcast_buffers": 1}})"),
              HasSubstr("parallel.broadcast_buffers is 1; it must be true or false"));
  EXPECT_THAT(error_of(R"({"model": "convnet"})"), HasSubstr("model is \"convnet\""));
  EXPECT_THAT(error_of(R"({"checkpoint": 3})"), HasSubstr("must be a string"));
  EXPECT_THAT(error_of(R"([])"), HasSubstr("must be an object"));
}

TEST(TrainConfig, UnknownNamesListTheKnown) {
  EXPECT_THAT(error_of(R"({"optimizer": {"name": "sdg"}})"),
              AllOf(HasSubstr("optimizer.name"), HasSubstr("\"sgd\""), HasSubstr("adam")));
}

TEST(TrainConfig, AnUnknownCodecListsTheKnownWithALineOnEach) {
  EXPECT_THAT(error_of(R"({"parallel": {"codec": "int9"}})"),
              AllOf(HasSubstr("parallel.codec"), HasSubstr("int9"), HasSubstr("\n"),
                    HasSubstr("int8"), HasSubstr("power_sgd")));
  EXPECT_THAT(error_of(R"({"parallel": {"codec": "top_k:2"}})"), HasSubstr("parallel.codec"));
  EXPECT_EQ(recipe::parse_train_config(json::parse(R"({"parallel": {"codec": "auto:int4"}})"))
                .parallel.codec,
            "auto:int4");
}

TEST(TrainConfig, ACodecMayAlsoStandAboveParallel) {
  const auto config = recipe::parse_train_config(
      json::parse(R"({"codec": "top_k:0.02", "parallel": {"codec_min_elements": 10}})"));
  EXPECT_EQ(config.parallel.codec, "top_k:0.02");
  EXPECT_EQ(config.parallel.codec_min_elements, 10);
  EXPECT_THAT(error_of(R"({"codec": "int8", "parallel": {"codec": "int8"}})"),
              HasSubstr("codec and parallel.codec are the same; leave one out"));
  EXPECT_THAT(error_of(R"({"codec": "int9"})"), AllOf(HasSubstr("codec: "), HasSubstr("int9")));
  EXPECT_THAT(error_of(R"({"codec": 8})"), HasSubstr("codec is 8; it must be a string"));
}

TEST(TrainConfig, Fp16DoesNotOverlapTheNextForward) {
  EXPECT_EQ(recipe::parse_train_config(json::object()).parallel.overlap, step::Overlap::full);
  const auto half = recipe::parse_train_config(json::parse(R"({"precision": "fp16"})"));
  EXPECT_EQ(half.parallel.overlap, step::Overlap::backward);
  EXPECT_THAT(error_of(R"({"precision": "fp16", "parallel": {"overlap": "full"}})"),
              AllOf(HasSubstr("fp16"), HasSubstr("\"backward\"")));
  EXPECT_THAT(error_of(R"({"precision": "fp16", "parallel": {"check_finite": true}})"),
              HasSubstr("check_finite"));
  EXPECT_THAT(error_of(R"({"precision": "fp8"})"),
              AllOf(HasSubstr("precision"), HasSubstr("bf16")));
}

TEST(TrainConfig, SettingsGoBeforeTheFile) {
  const TemporaryFolder folder;
  write_file(folder / "c.json", "{\"epochs\": 3, // as in C++\n \"model\": {\"hidden\": 5}}");
  const auto config = recipe::load_train_config(
      folder / "c.json", {"epochs=4", "optimizer.learning_rate=0.5", "data.path=/a b", "epochs=5"});
  EXPECT_EQ(config.epochs, 5);
  EXPECT_EQ(config.model.hidden, 5);
  EXPECT_EQ(config.optimizer.learning_rate, 0.5);
  EXPECT_EQ(config.data.path, "/a b");
}

TEST(TrainConfig, WrongSettingsAndFilesAreRefused) {
  const TemporaryFolder folder;
  write_file(folder / "c.json", "{}");
  const auto with = [&](const std::string& setting) {
    return error_of([&] { recipe::load_train_config(folder / "c.json", {setting}); });
  };
  EXPECT_THAT(with("epochs"), HasSubstr("key.sub=value"));
  EXPECT_THAT(with("=3"), HasSubstr("key.sub=value"));
  EXPECT_THAT(with("model.hiden=3"), AllOf(HasSubstr("c.json"), HasSubstr("\"hidden\"")));
  write_file(folder / "c.json", "{\"epochs\": 3");
  EXPECT_THAT(with("epochs=1"), HasSubstr("is not JSON"));
  write_file(folder / "c.json", "{\"epochs\": 3,\n \"epochs\": 4}");
  EXPECT_THAT(with("epochs=1"), AllOf(HasSubstr("c.json:2: "), HasSubstr("\"epochs\"")));
  write_file(folder / "c.json", "{\"seed\": 1e400}");
  EXPECT_THAT(with("epochs=1"), HasSubstr("c.json:1: "));
  write_file(folder / "c.json", "{\"epochs\": 3}");
  EXPECT_THAT(with("zero={\"stage\": 1, \"stage\": 2}"), HasSubstr("\"stage\" stands twice"));
  EXPECT_THAT(with("epochs.of=1"), HasSubstr("where an object is expected"));
  EXPECT_THAT(error_of([&] { recipe::load_train_config(folder / "none.json"); }),
              HasSubstr("cannot read"));
}

/// Command lines and paths may contain any bytes.
TEST(TrainConfig, SettingsNeedNotBeUtf8) {
  const TemporaryFolder folder;
  write_file(folder / "c.json", "{}");
  const auto with = [&](const std::string& setting) {
    return error_of([&] { recipe::load_train_config(folder / "c.json", {setting}); });
  };
  EXPECT_THAT(with("epochs=\xff"), HasSubstr("epochs is"));
  EXPECT_THAT(with("model=\xff"), HasSubstr("model is"));
  EXPECT_THAT(with("model.name=\xff"), HasSubstr("model.name"));
  EXPECT_EQ(recipe::load_train_config(folder / "c.json", {"data.path=/\xff"}).data.path, "/\xff");
  EXPECT_THAT(recipe::configuration_text(folder / "c.json", {"data.path=/\xff"}),
              HasSubstr("\"path\""));
}

TEST(TrainConfig, ABatchMustDivide) {
  recipe::TrainConfig config;
  config.batch_size = 128;
  EXPECT_EQ(recipe::batch_size_per_replica(config, 4), 32);
  config.accumulation_steps = 3;
  EXPECT_THAT(error_of([&] { recipe::batch_size_per_replica(config, 4); }),
              HasSubstr("batch_size 128 is not divisible by 4 ranks times 3 accumulation_steps"));
}

}  // namespace
}  // namespace gradwire::test
