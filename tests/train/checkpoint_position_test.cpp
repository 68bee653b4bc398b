#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/base/error.h"
#include "gradwire/train/checkpoint/position.h"

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

}  // namespace
}  // namespace gradwire::test
