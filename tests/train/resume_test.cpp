#include <algorithm>
#include <atomic>
#include <fstream>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/base/error.h"
#include "gradwire/checkpoint/checkpoint_folder.h"
#include "gradwire/checkpoint/checkpoint_reader.h"
#include "gradwire/checkpoint/consolidate.h"
#include "gradwire/recipe/trainer.h"
#include "gradwire/train/checkpoint/safetensors.h"
#include "tests/support/idx_files.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/torch/loopback.h"

namespace gradwire::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// Ends the run, as a crash would, after a number of calls.
class CrashingClock final : public Clock {
 public:
  explicit CrashingClock(int readings) : left_(readings) {}
  Time now() const override {
    if (--left_ < 0) throw std::runtime_error("crash");
    return Time{};
  }

 private:
  mutable std::atomic<int> left_;
};

constexpr int kForEver = 1'000'000;

struct ResumeTest : ::testing::Test {
  ResumeTest() {
    at::set_num_threads(1);
    write_image_data(folder.path(), 330, 101);
    config.model = {.name = "mlp", .hidden = 16};
    config.data.path = folder.path();
    config.optimizer.learning_rate = 0.02;
    config.schedule = {.warmup_epochs = 1, .decay = "cosine"};
    config.parallel.codec = "top_k:0.05";
    config.epochs = 2;
    config.batch_size = 32;
    config.checkpoint_every = 7;
  }

  void train_to(const std::string& output, int readings = kForEver) {
    train_on(2, output, readings);
  }

  void train_on(int ranks, const std::string& output, int readings = kForEver) {
    shown.str("");
    const bool crashes = readings < kForEver;
    run_on_loopback(ranks, [&](const auto& group) {
      const CrashingClock clock(readings);
      recipe::train(config, {.group = group,
                             .clock = &clock,
                             .progress = group->getRank() == 0 && !crashes ? &progress : nullptr,
                             .output = folder / output});
    });
  }

  std::filesystem::path model_in(const std::string& output) {
    return folder / output / "model.safetensors";
  }

  std::filesystem::path kept(const std::string& output = "killed") {
    return folder / output / "checkpoints" / "step-000014";
  }

  /// Returns true if the models of two runs are bitwise equal.
  bool same_models(const std::string& a, const std::string& b) {
    const auto first = load_safetensors(model_in(a)).tensors;
    const auto second = load_safetensors(model_in(b)).tensors;
    EXPECT_EQ(first.size(), 4u);
    return std::ranges::all_of(
        first, [&second](const auto& item) { return item.second.equal(second.at(item.first)); });
  }

  double difference(const std::string& a, const std::string& b) {
    const auto first = load_safetensors(model_in(a)).tensors;
    const auto second = load_safetensors(model_in(b)).tensors;
    double largest = 0;
    for (const auto& [name, tensor] : first) {
      largest = std::max(largest, (tensor - second.at(name)).abs().max().template item<double>());
    }
    return largest;
  }

  /// Edits the rank-specific tensors of a checkpoint.
  void edit_rank_tensors(const std::function<void(std::vector<checkpoint::RankTensor>&)>& edit) {
    auto manifest = checkpoint::read_manifest(kept());
    for (auto& tensors : manifest.rank_tensors) edit(tensors);
    std::ofstream(kept() / checkpoint::kManifestName) << checkpoint::manifest_text(manifest);
  }

  void crash_after_step_16() { EXPECT_THROW(train_to("killed", 16 * 3), std::exception); }

  std::string error_of_resuming() {
    try {
      train_to("again");
    } catch (const Exception& error) {
      EXPECT_EQ(error.kind(), ErrorKind::invalid_argument);
      return error.what();
    }
    return "no error";
  }

  TemporaryFolder folder;
  std::ostringstream shown;
  report::ProgressPrinter progress{shown, false};
  recipe::TrainConfig config;
};

TEST_F(ResumeTest, InTheMiddleOfAnEpochWithTheSameBits) {
  config.checkpoint_keep = 1;
  train_to("whole");
  crash_after_step_16();
  EXPECT_TRUE(std::filesystem::exists(kept() / "rank-1-of-2.safetensors"));
  EXPECT_FALSE(std::filesystem::exists(folder / "killed" / "checkpoints" / "step-000007"));
  EXPECT_FALSE(std::filesystem::exists(model_in("killed"))) << "no run has finished there";
  config.resume = folder / "killed";
  train_to("resumed");
  EXPECT_TRUE(same_models("whole", "resumed"));
}

TEST_F(ResumeTest, AdamsStatesAndTheLossScaleGoOnWithTheSameBits) {
  config.parallel.codec = "none";
  config.parallel.overlap = step::Overlap::backward;
  config.precision = Precision::fp16;
  config.optimizer = {.name = "adam", .learning_rate = 0.003};
  train_to("whole");
  crash_after_step_16();
  config.resume = folder / "killed";
  train_to("resumed");
  EXPECT_TRUE(same_models("whole", "resumed"));
}

TEST_F(ResumeTest, LocalStepsGoOnWithTheSameBits) {
  config.local_steps = {.steps = 4,
                        .outer_learning_rate = 0.7,
                        .outer_momentum = 0.9,
                        .fragments = 2,
                        .overlap_steps = 1,
                        .mixing = 0.5,
                        .enabled = true};
  config.checkpoint_every = 5;  // While a fragment is in flight.
  train_to("whole");
  crash_after_step_16();
  config.resume = folder / "killed";
  train_to("resumed");
  EXPECT_TRUE(same_models("whole", "resumed"));
}

TEST_F(ResumeTest, ZeroAndItsCodecGoOnWithTheSameBits) {
  config.parallel.codec_min_elements = 16;
  for (const int stage : {1, 2, 3}) {
    config.zero.stage = stage;
    config.resume.clear();
    train_to("whole");
    std::filesystem::remove_all(folder / "killed");
    crash_after_step_16();
    config.resume = folder / "killed";
    train_to("resumed");
    EXPECT_TRUE(same_models("whole", "resumed")) << "stage " << stage;
  }
}

TEST_F(ResumeTest, ZeroWithACodecGoesOnInAnotherStageOrOnOtherRanks) {
  config.parallel.codec_min_elements = 16;
  config.zero.stage = 2;
  crash_after_step_16();
  config.resume = folder / "killed";
  train_on(4, "resumed");
  EXPECT_THAT(shown.str(), HasSubstr("error feedback"));
  config.zero.stage = 3;
  train_to("resumed");
  EXPECT_TRUE(std::filesystem::exists(model_in("resumed")));
}

/// The way for a model that no rank can hold.
TEST_F(ResumeTest, CheckpointsAreWrittenWithoutAFileOfTheWholeModel) {
  config.parallel.codec = "none";
  config.zero.stage = 3;
  config.checkpoint = "";
  train_to("parts");
  EXPECT_FALSE(std::filesystem::exists(model_in("parts")));
  config.checkpoint = "model.safetensors";
  train_to("whole");
  const checkpoint::CheckpointReader reader(
      checkpoint::find_checkpoint(folder / "parts" / "checkpoints"));
  checkpoint::consolidate(reader, folder / "made.safetensors", false);
  const auto made = load_safetensors(folder / "made.safetensors").tensors;
  const auto whole = load_safetensors(model_in("whole")).tensors;
  ASSERT_EQ(made.size(), whole.size());
  for (const auto& [name, tensor] : whole) EXPECT_TRUE(torch::equal(made.at(name), tensor)) << name;
}

TEST_F(ResumeTest, OnOtherRanksItIsTheSameTraining) {
  config.parallel.codec = "none";
  config.optimizer = {.name = "adam", .learning_rate = 0.003};
  train_to("whole");
  crash_after_step_16();
  config.resume = folder / "killed";
  for (const int ranks : {1, 4}) {
    train_on(ranks, "resumed");
    EXPECT_LT(difference("whole", "resumed"), 1e-4) << ranks << " ranks";
    EXPECT_THAT(shown.str(),
                AllOf(HasSubstr("after 14 steps of 2 ranks"), HasSubstr("reset: random numbers")));
  }
}

TEST_F(ResumeTest, WithOtherBatchesTheEpochGoesOnAfterAsManySamples) {
  config.parallel.codec = "none";
  crash_after_step_16();
  config.resume = folder / "killed";
  config.batch_size = 64;
  train_to("resumed");
  // 10 batches of 32 an epoch: 14 steps are 4 batches into the second epoch, which has 5 batches of
  // 64.
  EXPECT_THAT(shown.str(), HasSubstr("epoch 2 continues at batch 2 of 5 instead of 4 of 10"));
}

TEST_F(ResumeTest, AutoGoesOnWhereThereIsACheckpoint) {
  train_to("whole");
  config.resume = "auto";
  crash_after_step_16();  // There was no checkpoint, so it started from the beginning.
  EXPECT_FALSE(std::filesystem::exists(model_in("killed")));
  train_to("killed");
  EXPECT_THAT(shown.str(), HasSubstr("step-000014, after 14 steps"));
  EXPECT_TRUE(same_models("whole", "killed"));
}

TEST_F(ResumeTest, AutoDoesNotGoOnFromAnOlderOneUnasked) {
  crash_after_step_16();
  const auto older = folder / "killed" / "checkpoints" / "step-000007";
  ASSERT_TRUE(std::filesystem::exists(older));
  std::filesystem::resize_file(kept() / checkpoint::kManifestName, 700);
  config.resume = "auto";
  try {
    train_to("killed");
    FAIL() << "it went on: " << shown.str();
  } catch (const Exception& error) {
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr((kept() / checkpoint::kManifestName).string()),
                      HasSubstr("remove " + kept().string()), HasSubstr(older.string())));
  }
  std::filesystem::remove_all(kept());  // The message suggests this.
  train_to("killed");
  EXPECT_THAT(shown.str(), HasSubstr("step-000007, after 7 steps"));
}

TEST_F(ResumeTest, AnInvalidPositionInTheDataIsRefused) {
  crash_after_step_16();
  config.resume = folder / "killed";
  const auto text = checkpoint::read_manifest(kept()).run;
  for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{
           {R"("batches":10)", R"("batches":0)"},
           {R"("batches":10)", R"("batches":9223372036854775807)"},
           {R"("batch":4)", R"("batch":"4")"},
           {R"("epoch":1)", R"("epoch":-1)"}}) {
    auto manifest = checkpoint::read_manifest(kept());
    manifest.run = text;
    const auto at = manifest.run.find(from);
    ASSERT_NE(at, std::string::npos) << manifest.run;
    manifest.run.replace(at, from.size(), to);
    std::ofstream(kept() / checkpoint::kManifestName) << checkpoint::manifest_text(manifest);
    EXPECT_THAT(error_of_resuming(), HasSubstr("must be a whole number")) << to;
  }
}

TEST_F(ResumeTest, WithoutItsErrorFeedbackTheBitsAreOthers) {
  train_to("whole");
  crash_after_step_16();
  edit_rank_tensors([](auto& tensors) {
    const auto gone =
        std::erase_if(tensors, [](const auto& t) { return t.name.ends_with(".sent"); });
    EXPECT_GT(gone, 0u);
  });
  config.resume = folder / "killed";
  train_to("resumed");
  EXPECT_FALSE(same_models("whole", "resumed"));
}

TEST_F(ResumeTest, AnotherModelIsAnErrorThatNamesTensorFileAndShapes) {
  crash_after_step_16();
  config.resume = folder / "killed";
  config.model.hidden = 17;
  EXPECT_THAT(error_of_resuming(),
              AllOf(HasSubstr("'hidden.weight'"), HasSubstr("[16, 784]"), HasSubstr("[17, 784]"),
                    HasSubstr("step-000014/rank-0-of-2"), HasSubstr("another model")));
}

TEST_F(ResumeTest, ErrorFeedbackOfAnotherShapeNamesTheParameter) {
  crash_after_step_16();
  edit_rank_tensors([](auto& tensors) {
    for (auto& tensor : tensors) {
      if (tensor.name == "feedback.hidden.weight.sent") tensor.shape = {3};
    }
  });
  config.resume = folder / "killed";
  EXPECT_THAT(error_of_resuming(), AllOf(HasSubstr("rank 0"), HasSubstr("hidden.weight")));
}

TEST_F(ResumeTest, AModelAloneIsRefused) {
  config.checkpoint_every = 0;
  train_to("whole");
  config.resume = model_in("whole");
  EXPECT_THAT(error_of_resuming(), HasSubstr("checkpoint_every"));
}

TEST_F(ResumeTest, AMissingFileIsAnErrorOnAll) {
  crash_after_step_16();
  std::filesystem::remove(kept() / "rank-1-of-2.safetensors");
  config.resume = folder / "killed";
  EXPECT_THAT(error_of_resuming(),
              AllOf(HasSubstr("step-000014/rank-1-of-2"), HasSubstr("no rank sees this file")));
}

}  // namespace
}  // namespace gradwire::test
