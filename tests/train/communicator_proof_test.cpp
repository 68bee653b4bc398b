#include <gtest/gtest.h>

#include "tests/support/torch/loopback.h"
#include "tests/support/torch/thread_group.h"
#include "tests/train/proof_model.h"

namespace gradwire::test {
namespace {

struct CommunicatorProof : ::testing::TestWithParam<std::tuple<Rule, int>> {};

TEST_P(CommunicatorProof, RanksWithPartsOfABatchEqualOneProcessWithAll) {
  const auto [rule, ranks] = GetParam();
  Parameters alone;
  run_on_threads(1,
                 [&, rule = rule](const auto& group) { alone = train_proof_net(group, rule, 50); });
  std::vector<Parameters> together(static_cast<std::size_t>(ranks));
  run_on_loopback(ranks, [&, rule = rule](const auto& group) {
    together[static_cast<std::size_t>(group->getRank())] = train_proof_net(group, rule, 50);
  });
  for (const auto& parameters : together) {
    EXPECT_LT(test::largest_difference(alone, parameters), 1e-6);
    EXPECT_EQ(test::largest_difference(together[0], parameters), 0) << "ranks must not drift apart";
  }
}

INSTANTIATE_TEST_SUITE_P(OverLoopback, CommunicatorProof,
                         ::testing::Combine(::testing::Values(Rule::sgd_with_momentum, Rule::adam),
                                            ::testing::Values(2, 4, 8)));

}  // namespace
}  // namespace gradwire::test
