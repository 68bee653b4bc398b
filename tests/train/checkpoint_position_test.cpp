#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/base/error.h"
#include "gradwire/recipe/deal_position.h"
#include "gradwire/train/checkpoint/position.h"
#include "tests/support/error_of.h"

namespace gradwire::test {
namespace {

using ::testing::HasSubstr;

const RunPosition kSaved{.steps = 14, .batches = 10, .batch_size = 32, .seed = 1};

TEST(Position, IsTheSameBatchWhereNothingChanged) {
  const auto resumed = resumed_position(position_text(kSaved), kSaved);
  EXPECT_EQ(resumed.steps, 14);
  EXPECT_EQ(resumed.remark, "");
}

TEST(Position, GoesOnAfterAsManySamplesOrABatchFewer) {
  const auto text = position_text(kSaved);
  const auto larger = resumed_position(text, {.batches = 3, .batch_size = 96, .seed = 1});
  EXPECT_EQ(larger.steps, 3 + 1) << "4 * 32 samples are 1.33 batches of 96";
  EXPECT_THAT(larger.remark, HasSubstr("epoch 2 continues at batch 1 of 3 instead of 4 of 10"));
  EXPECT_EQ(resumed_position(text, {.batches = 20, .batch_size = 16, .seed = 1}).steps, 28);
  EXPECT_EQ(resumed_position(text, {.batches = 2, .batch_size = 32, .seed = 1}).steps, 2 + 2)
      << "not beyond the epoch's end";
}

TEST(Position, SaysThatAnotherSeedIsAnotherOrder) {
  const auto resumed =
      resumed_position(position_text(kSaved), {.batches = 10, .batch_size = 32, .seed = 2});
  EXPECT_EQ(resumed.steps, 14);
  EXPECT_THAT(resumed.remark, HasSubstr("seed"));
}

TEST(Position, ForeignCheckpointIsAnError) {
  EXPECT_THROW(resumed_position("{}", kSaved), Exception);
}

const servers::DealProgress kProgress{
    .dealt = 500,
    .unapplied = {{.epoch = 1, .begin = 100, .count = 8}, {.epoch = 0, .begin = 16, .count = 4}}};

TEST(DealPosition, ServersGoOnWithTheSameSamples) {
  const std::string saved = recipe::position_text(kSaved, 330, kProgress);
  const auto resumed = recipe::resumed_progress(saved, kSaved, 330, 3);
  EXPECT_EQ(servers::encode(resumed), servers::encode(kProgress));
  EXPECT_EQ(resumed_position(saved, kSaved).steps, 14);
}

TEST(DealPosition, AnotherOrderBeginsAtTheSameStep) {
  const std::string saved = recipe::position_text(kSaved, 330, kProgress);
  RunPosition other = kSaved;
  other.seed = 2;
  for (const auto& resumed : {recipe::resumed_progress(saved, other, 330, 3),
                              recipe::resumed_progress(position_text(kSaved), kSaved, 330, 3)}) {
    EXPECT_EQ(resumed.dealt, 330 + 4 * 32);
    EXPECT_TRUE(resumed.unapplied.empty());
  }
  EXPECT_EQ(recipe::resumed_progress(saved, kSaved, 340, 3).dealt, 340 + 4 * 32);
}

TEST(DealPosition, FewerEpochsEndAtOnce) {
  const auto resumed =
      recipe::resumed_progress(recipe::position_text(kSaved, 330, kProgress), kSaved, 330, 1);
  EXPECT_EQ(resumed.dealt, 330);
  EXPECT_EQ(resumed.applied(), 326);
}

TEST(DealPosition, DamageIsNamed) {
  for (const std::string progress : {"[1, 2]", "7", "[\"a\"]", "null"}) {
    const std::string saved =
        R"({"seed": 1, "dealt": {"samples": 330, "progress": )" + progress + "}}";
    EXPECT_THAT(error_of([&] { recipe::resumed_progress(saved, kSaved, 330, 1); }),
                HasSubstr("damaged samples"));
  }
}

}  // namespace
}  // namespace gradwire::test
