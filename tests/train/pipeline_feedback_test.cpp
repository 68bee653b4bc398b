#include <filesystem>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/train/checkpoint/checkpoint.h"
#include "gradwire/train/parallel_mesh.h"
#include "tests/support/temporary_folder.h"
#include "tests/train/pipeline_model.h"

/// Codecs of gradients in pipelines with replicas: their options, and their state in checkpoints.
namespace gradwire::test {
namespace {

using ::testing::HasSubstr;

struct Coded {
  std::string codec = "none";
  int zero_stage = 0;
  std::string schedule = "interleaved:2";  ///< Two stages, and so two exchanges, on each rank.
  int replicas = 2;
  std::size_t min_elements = 1;
  int warmup_steps = 0;
  std::uint64_t seed = 1;
};

/// Trains from one step to another, after the folder's checkpoint, and leaves one. Returns rank 0's
/// parameters and optimizer states; `summary` gets the line about the resumed run.
NamedValues train_part(const Coded& what, int from, int to, const std::filesystem::path& folder,
                       std::string* summary = nullptr) {
  NamedValues values;
  on_ranks(2 * what.replicas, [&](const ProcessGroup& world) {
    const ParallelMesh mesh(world, {.data = what.replicas, .pipeline = 2});
    auto options = pipeline_options(mesh.pipeline(), what.schedule, 4);
    options.data = {.process_group = mesh.data(),
                    .zero_stage = what.zero_stage,
                    .options = {.codec = what.codec,
                                .codec_min_elements = what.min_elements,
                                .codec_warmup_steps = what.warmup_steps,
                                .codec_seed = what.seed}};
    Pipeline model(shared_layers(), options);
    const auto state = [&]() -> RunState {
      return {.group = world, .model = model, .feedback = model.feedback()};
    };
    if (from > 0) {
      const ResumedRun resumed = load_checkpoint(folder, state());
      if (summary != nullptr && world->getRank() == 0) *summary = resumed.summary;
    }
    for (int step = from; step < to; ++step) {
      const auto batch = pipeline_batch(8, 10 * step + mesh.position().data);
      model.train_step(batch.inputs, batch.targets);
    }
    save_checkpoint(state(), to, {.folder = folder});
    if (world->getRank() == 0) values = state_values(model);
  });
  return values;
}

NamedValues train_whole(const Coded& what) {
  const TemporaryFolder folder;
  return train_part(what, 0, 6, folder.path());
}

bool same(const NamedValues& a, const NamedValues& b) {
  return std::ranges::equal(a, b, [](const auto& x, const auto& y) {
    return x.first == y.first && x.second.equal(y.second);
  });
}

struct PipelineFeedback : ::testing::TestWithParam<std::string> {};

TEST_P(PipelineFeedback, ContinuesFromACheckpointWithTheSameBits) {
  for (const int zero_stage : {0, 2}) {
    const Coded what{.codec = GetParam(), .zero_stage = zero_stage};
    const TemporaryFolder folder;
    train_part(what, 0, 3, folder.path());
    const NamedValues resumed = train_part(what, 3, 6, folder.path());
    EXPECT_TRUE(same(resumed, train_whole(what))) << "ZeRO " << zero_stage;
  }
}

INSTANTIATE_TEST_SUITE_P(Codecs, PipelineFeedback, ::testing::Values("top_k:0.05", "int4", "qsgd"));

TEST(PipelineFeedback, IsResetOnOtherRanksWhichTheSummarySays) {
  const TemporaryFolder folder;
  Coded what{.codec = "top_k:0.05"};
  train_part(what, 0, 3, folder.path());
  what.replicas = 3;
  std::string summary;
  train_part(what, 3, 4, folder.path(), &summary);
  EXPECT_THAT(summary, HasSubstr("reset: random numbers, error feedback"));
}

TEST(PipelineCodec, ObeysItsOptionsWithAndWithoutZero) {
  for (const int zero_stage : {0, 1}) {
    const Coded what{.codec = "top_k:0.05", .zero_stage = zero_stage};
    const NamedValues usual = train_whole(what);
    EXPECT_TRUE(same(train_whole(what), usual)) << "a run repeats";
    Coded warm = what;
    warm.warmup_steps = 1000;
    EXPECT_FALSE(same(train_whole(warm), usual)) << "ZeRO " << zero_stage;
    Coded few = what;
    few.min_elements = 1'000'000;
    EXPECT_FALSE(same(train_whole(few), usual)) << "ZeRO " << zero_stage;
    EXPECT_TRUE(same(train_whole(few), train_whole({.zero_stage = zero_stage})))
        << "no tensor is large enough to be compressed";
    const Coded drawn{.codec = "qsgd", .zero_stage = zero_stage};
    Coded other = drawn;
    other.seed = 2;
    EXPECT_FALSE(same(train_whole(other), train_whole(drawn))) << "ZeRO " << zero_stage;
  }
}

}  // namespace
}  // namespace gradwire::test
