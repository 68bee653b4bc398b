#include <gtest/gtest.h>

#include "gradwire/train/checkpoint/safetensors.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/torch/thread_group.h"
#include "tests/train/proof_model.h"
#include "tests/train/subprocess.h"

namespace gradwire::test {
namespace {

struct ProcessProof : ::testing::TestWithParam<Rule> {};

TEST_P(ProcessProof, FourProcessesWithPartsOfABatchEqualOneWithAll) {
  const TemporaryFolder folder;
  const auto programs = own_program().parent_path();
  const auto finished = run({programs / "gradwire", "run", "-n", "4", "--", programs / "train_rank",
                             "proof", GetParam() == Rule::adam ? "adam" : "sgd", folder.path()});
  ASSERT_EQ(finished.status, 0) << finished.output;
  Parameters alone;
  run_on_threads(1, [&](const auto& group) { alone = train_proof_net(group, GetParam(), 50); });
  const auto first = load_safetensors(folder / "0.safetensors").tensors;
  EXPECT_LT(test::largest_difference(alone, first), 1e-6);
  for (const auto* file : {"1.safetensors", "2.safetensors", "3.safetensors"}) {
    EXPECT_EQ(test::largest_difference(first, load_safetensors(folder / file).tensors), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(OverTcp, ProcessProof,
                         ::testing::Values(Rule::sgd_with_momentum, Rule::adam));

}  // namespace
}  // namespace gradwire::test
