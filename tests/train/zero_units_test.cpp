#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/train/zero/flat_unit.h"
#include "gradwire/train/zero/unit_plan.h"
#include "tests/train/zero_model.h"

namespace gradwire::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Parameters of these sizes; all elements are distinct and nonzero.
std::vector<NamedTensor> numbered(const std::vector<std::int64_t>& sizes) {
  std::vector<NamedTensor> parameters;
  std::int64_t first = 1;
  for (const auto size : sizes) {
    parameters.push_back({"p" + std::to_string(parameters.size()),
                          torch::arange(first, first + size, torch::kFloat32)});
    first += size;
  }
  return parameters;
}

/// Returns each rank's unit, made of its own parameters of these sizes.
std::vector<FlatUnit> units_of_ranks(const std::vector<std::int64_t>& sizes, int ranks,
                                     FlatUnitOptions options) {
  std::vector<FlatUnit> units;
  options.ranks = ranks;
  for (int rank = 0; rank < ranks; ++rank) {
    options.rank = rank;
    units.emplace_back("unit", numbered(sizes), options);
  }
  return units;
}

struct FlatUnits : ::testing::TestWithParam<std::tuple<int, bool>> {};

TEST_P(FlatUnits, HaveEqualPartsAndFewerPaddingElementsThanRanksAtTheEnd) {
  const auto [ranks, sharded] = GetParam();
  for (const std::int64_t last : {1, 2, 3, 4, 5, 6, 7}) {
    const auto units = units_of_ranks({2, 3, last}, ranks, {.sharded = sharded});
    const std::int64_t used = 5 + last;
    std::vector<torch::Tensor> parts;
    for (const auto& unit : units) {
      EXPECT_EQ(unit.used_elements(), used);
      EXPECT_EQ(unit.shard().numel() * ranks, unit.elements());
      EXPECT_LT(unit.elements() - used, ranks);
      parts.push_back(unit.shard());
    }
    const auto whole = torch::cat(parts);
    EXPECT_TRUE(whole.narrow(0, 0, used).equal(torch::arange(1, used + 1, torch::kFloat32)));
    EXPECT_EQ(whole.narrow(0, used, whole.numel() - used).count_nonzero().item<std::int64_t>(), 0);
    EXPECT_TRUE(units[0].flat().equal(whole));
  }
}

TEST_P(FlatUnits, HavePiecesThatAreEachElementOnce) {
  const auto [ranks, sharded] = GetParam();
  const auto units = units_of_ranks({3, 4, 4}, ranks, {.sharded = sharded});
  std::vector<float> found;
  for (const auto& unit : units) {
    for (const auto& piece : unit.pieces()) {
      const auto values = unit.shard().narrow(0, piece.offset, piece.count);
      EXPECT_TRUE(values.equal(piece.member->parameter.narrow(0, piece.begin, piece.count)));
      for (std::int64_t i = 0; i < piece.count; ++i) found.push_back(values[i].item<float>());
    }
  }
  EXPECT_THAT(found, ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11));
}

INSTANTIATE_TEST_SUITE_P(OnRanks, FlatUnits,
                         ::testing::Combine(::testing::Values(1, 2, 3, 4, 16), ::testing::Bool()));

TEST(FlatUnit, HasItsParametersOneAfterTheOtherWithTheirShapes) {
  std::vector<NamedTensor> parameters{{"matrix", torch::arange(6.0).view({2, 3}).t()},
                                      {"vector", torch::full({2}, 9.0)}};
  const FlatUnit unit("unit", parameters, {.ranks = 3});
  EXPECT_EQ(parameters[0].tensor.sizes(), (at::IntArrayRef{3, 2}));
  EXPECT_TRUE(parameters[0].tensor.is_contiguous());
  EXPECT_EQ(parameters[0].tensor.data_ptr(), unit.flat().data_ptr());
  EXPECT_EQ(parameters[1].tensor.data_ptr<float>(), unit.flat().data_ptr<float>() + 6);
  EXPECT_TRUE(unit.flat().equal(torch::tensor({0.0, 3.0, 1.0, 4.0, 2.0, 5.0, 9.0, 9.0, 0.0})));
}

TEST(FlatUnit, NarrowTypesKeepAMasterCopy) {
  auto parameters = numbered({5});
  parameters[0].tensor.add_(1.0 / 1024);
  const FlatUnit unit("unit", parameters,
                      {.rank = 1, .ranks = 2, .type = torch::ScalarType::BFloat16});
  EXPECT_EQ(parameters[0].tensor.scalar_type(), torch::kBFloat16);
  ASSERT_TRUE(unit.has_master());
  const float rest = 1.0F / 1024;
  EXPECT_TRUE(unit.master().equal(torch::tensor({4 + rest, 5 + rest, 0.0F})));
  EXPECT_TRUE(unit.shard().equal(torch::tensor({4, 5, 0}, torch::kBFloat16)));
}

TEST(FlatUnit, IsReleasedButForItsPart) {
  auto parameters = numbered({3, 2});
  FlatUnit unit("unit", parameters, {.rank = 1, .ranks = 2, .sharded = true});
  unit.release();
  EXPECT_FALSE(unit.present());
  EXPECT_TRUE(unit.shard().equal(torch::tensor({4.0F, 5.0F, 0.0F})));
  try {
    parameters[1].tensor.sum();
    ADD_FAILURE() << "it could be read";
  } catch (const std::exception& error) {
    EXPECT_THAT(error.what(), HasSubstr("'p0' (with 1 more parameters)"));
  }
  unit.allocate();
  unit.flat().fill_(7);
  EXPECT_TRUE(parameters[1].tensor.equal(torch::tensor({7.0F, 7.0F})));
}

/// Returns a unit's name and its parameters', "name: a b", with "(root)" appended if it belongs to
/// the root.
std::vector<std::string> described(const UnitPlan& plan,
                                   const std::vector<NamedTensor>& parameters) {
  std::vector<std::string> units;
  for (const auto& unit : plan.units) {
    units.push_back(unit.name + ":");
    for (const auto index : unit.members) units.back() += " " + parameters[index].name;
    if (unit.root) units.back() += " (root)";
  }
  return units;
}

std::vector<std::string> plan_of(const torch::nn::Module& module, std::int64_t min_elements) {
  const auto parameters = trainable_parameters(module);
  return described(plan_block_units(module, parameters, {}, {}, min_elements), parameters);
}

TEST(BlockUnits, AreASequentialsChildrenThatHaveParameters) {
  const torch::nn::Sequential model(torch::nn::Linear(2, 3), torch::nn::Tanh(),
                                    torch::nn::Linear(3, 2));
  EXPECT_THAT(plan_of(*model, 0), ElementsAre("0: 0.weight 0.bias", "2: 2.weight 2.bias"));
  const auto plan = plan_block_units(*model, trainable_parameters(*model), {}, {}, 0);
  EXPECT_THAT(plan.units_of_block.at(model->ptr(0).get()), ElementsAre(0));
  EXPECT_THAT(plan.units_of_block.at(model->ptr(1).get()), ElementsAre());
  EXPECT_THAT(plan.units_of_block.at(model->ptr(2).get()), ElementsAre(1));
}

TEST(BlockUnits, LeaveToTheRootWhatIsInNoBlockOrInTwo) {
  EXPECT_THAT(plan_of(*ZeroNet(), 0),
              ElementsAre("first: first.weight first.bias", "norm: norm.weight norm.bias",
                          "twice: twice.bias", "tied: tied.bias", "never: never.weight never.bias",
                          HasSubstr("(in no block):")));
}

TEST(BlockUnits, HaveEachParameterOnceAndTheRootsAtTheEnd) {
  const ZeroNet net;
  const auto parameters = trainable_parameters(*net);
  for (const std::int64_t min_elements : {0, 20, 100, 1'000'000}) {
    const auto plan = plan_block_units(*net, parameters, {}, {}, min_elements);
    std::vector<std::size_t> placed;
    for (const auto& unit : plan.units) {
      placed.insert(placed.end(), unit.members.begin(), unit.members.end());
    }
    std::ranges::sort(placed);
    ASSERT_EQ(placed.size(), parameters.size()) << min_elements;
    for (std::size_t i = 0; i < placed.size(); ++i) EXPECT_EQ(placed[i], i) << min_elements;
    EXPECT_TRUE(std::ranges::is_sorted(plan.units, {}, &UnitPlan::Unit::root)) << min_elements;
    EXPECT_TRUE(plan.units.back().root);
  }
}

TEST(BlockUnits, SomeParametersAreUnitsOfTheirOwn) {
  const torch::nn::Sequential model(torch::nn::Linear(2, 3), torch::nn::Linear(3, 3));
  const auto parameters = trainable_parameters(*model);
  const UnitSharing sharing{.alone = {"0.bias", "1.weight"}};
  EXPECT_THAT(described(plan_block_units(*model, parameters, {}, {}, 0, sharing), parameters),
              ElementsAre("0: 0.weight", "0: 0.bias", "1: 1.weight", "1: 1.bias"));
  EXPECT_THAT(described(plan_block_units(*model, parameters, {}, {}, 100, sharing), parameters),
              ElementsAre("(in no block): 1.weight (root)", "(in no block): 0.bias (root)",
                          "(in no block): 1.bias 0.weight (root)"));
  EXPECT_THAT(described(plan_whole_units(parameters, {}, sharing), parameters),
              ElementsAre("0: 1.weight", "1: 0.bias", "2: 1.bias 0.weight"));
}

TEST(BlockUnits, SmallBlocksBelongToTheRoot) {
  const torch::nn::Sequential model(torch::nn::Linear(2, 3), torch::nn::Linear(3, 3));
  EXPECT_THAT(plan_of(*model, 10), ElementsAre("1: 1.weight 1.bias", HasSubstr("0.weight")));
}

}  // namespace
}  // namespace gradwire::test
