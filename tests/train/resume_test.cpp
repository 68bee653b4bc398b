#include <atomic>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/base/error.h"
#include "gradwire/train/checkpoint.h"
#include "gradwire/train/safetensors.h"
#include "gradwire/train/trainer.h"
#include "tests/data/idx_files.h"
#include "tests/data/temporary_folder.h"
#include "tests/torch/loopback.h"

namespace gradwire::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// Ends the run, as a crash would, when it has been asked so often.
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

  void train_to(const std::string& output, int readings = 1'000'000) {
    run_on_loopback(2, [&](const auto& group) {
      const CrashingClock clock(readings);
      train(config, {.group = group, .clock = &clock, .output = folder / output});
    });
  }

  std::filesystem::path model_in(const std::string& output) {
    return folder / output / "model.safetensors";
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
  TrainConfig config;
};

TEST_F(ResumeTest, InTheMiddleOfAnEpochWithTheSameBits) {
  train_to("whole");
  crash_after_step_16();
  const auto kept = load_safetensors(model_in("killed"));
  EXPECT_EQ(kept.metadata.at("step"), "14");
  EXPECT_TRUE(std::filesystem::exists(folder / "killed" / "model.step14.rank1.safetensors"));
  EXPECT_FALSE(std::filesystem::exists(folder / "killed" / "model.step7.rank1.safetensors"));
  config.resume = model_in("killed");
  train_to("resumed");
  const auto whole = load_safetensors(model_in("whole")).tensors;
  const auto resumed = load_safetensors(model_in("resumed")).tensors;
  ASSERT_EQ(whole.size(), 4u);
  for (const auto& [name, tensor] : whole) EXPECT_TRUE(tensor.equal(resumed.at(name))) << name;
}

TEST_F(ResumeTest, WithoutItsErrorFeedbackTheBitsAreOthers) {
  train_to("whole");
  crash_after_step_16();
  for (const auto* rank : {"0", "1"}) {
    const auto path =
        folder / "killed" / (std::string("model.step14.rank") + rank + ".safetensors");
    auto file = load_safetensors(path);
    std::vector<NamedTensor> rest;
    for (const auto& [name, tensor] : file.tensors) {
      if (!name.ends_with(".sent")) rest.push_back({name, tensor});
    }
    EXPECT_LT(rest.size(), file.tensors.size());
    save_safetensors(path, rest, file.metadata);
  }
  config.resume = model_in("killed");
  train_to("resumed");
  const auto whole = load_safetensors(model_in("whole")).tensors;
  const auto resumed = load_safetensors(model_in("resumed")).tensors;
  EXPECT_FALSE(whole.at("hidden.weight").equal(resumed.at("hidden.weight")));
}

TEST_F(ResumeTest, AnotherShapeIsAnErrorThatNamesTheParameter) {
  crash_after_step_16();
  config.resume = model_in("killed");
  config.model.hidden = 17;
  EXPECT_THAT(error_of_resuming(),
              AllOf(HasSubstr("'hidden.weight'"), HasSubstr("[16, 784]"), HasSubstr("[17, 784]")));
}

TEST_F(ResumeTest, ErrorFeedbackOfAnotherShapeNamesTheParameter) {
  crash_after_step_16();
  const auto path = folder / "killed" / "model.step14.rank1.safetensors";
  auto file = load_safetensors(path);
  std::vector<NamedTensor> tensors;
  for (const auto& [name, tensor] : file.tensors) {
    const bool ours = name == "feedback.hidden.weight.sent";
    tensors.push_back({name, ours ? torch::zeros({3}) : tensor});
  }
  save_safetensors(path, tensors, file.metadata);
  config.resume = model_in("killed");
  EXPECT_THAT(error_of_resuming(), AllOf(HasSubstr("rank 1"), HasSubstr("hidden.weight")));
}

TEST_F(ResumeTest, AModelAloneIsRefused) {
  config.checkpoint_every = 0;
  train_to("whole");
  config.resume = model_in("whole");
  EXPECT_THAT(error_of_resuming(), HasSubstr("checkpoint_every"));
}

TEST_F(ResumeTest, AMissingFileOfARankIsAnErrorOnAll) {
  crash_after_step_16();
  std::filesystem::remove(folder / "killed" / "model.step14.rank1.safetensors");
  config.resume = model_in("killed");
  EXPECT_THAT(error_of_resuming(), AllOf(HasSubstr("rank 1"), HasSubstr("step14.rank1")));
}

}  // namespace
}  // namespace gradwire::test
