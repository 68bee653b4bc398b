#include "gradwire/federated/remote/model_bytes.h"

#include <bit>

#include <gtest/gtest.h>

#include "gradwire/base/random.h"
#include "gradwire/federated/remote/client_plan.h"

namespace gradwire::federated {
namespace {

std::vector<float> random_values(std::size_t count, ModelType type, std::uint64_t seed) {
  Random random(seed);
  std::vector<float> values;
  for (std::size_t i = 0; i < count; ++i) {
    auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(random.unit() - 0.5));
    if (type == ModelType::bf16) bits &= 0xFFFF0000;
    values.push_back(std::bit_cast<float>(bits));
  }
  return values;
}

/// A step of training later: each element differs by a thousandth.
std::vector<float> later(std::vector<float> values, ModelType type) {
  for (float& value : values) {
    auto bits = std::bit_cast<std::uint32_t>(value * 1.001F);
    if (type == ModelType::bf16) bits &= 0xFFFF0000;
    value = std::bit_cast<float>(bits);
  }
  return values;
}

constexpr std::array kTypes{ModelType::float32, ModelType::bf16};

TEST(ModelBytes, AreTheModel) {
  for (const ModelType type : kTypes) {
    const auto values = random_values(1001, type, 3);
    const auto bytes = model_bytes(values, type);
    EXPECT_EQ(bytes.size(), type == ModelType::bf16 ? 2002u : 4004u);
    EXPECT_EQ(model_in(bytes, values.size(), type), values);
    EXPECT_FALSE(model_in(bytes, values.size() + 1, type));
  }
}

TEST(ModelBytes, ADifferenceIsExactAndShorter) {
  for (const ModelType type : kTypes) {
    const auto base = random_values(20'000, type, 4), other = random_values(20'000, type, 5);
    const auto values = later(base, type);
    const auto difference = model_difference(values, base, type);
    EXPECT_EQ(model_after(difference, base, type), values);
    EXPECT_LT(difference.size(), model_bytes(values, type).size() * 3 / 4);
    EXPECT_EQ(model_after(model_difference(other, base, type), base, type), other);
    EXPECT_LT(model_difference(base, base, type).size(), 1000u);
    const auto wrong = model_after(difference, other, type);
    ASSERT_TRUE(wrong);
    EXPECT_NE(digest_of_model("{}", *wrong), digest_of_model("{}", values));
    EXPECT_NE(digest_of_model("{ }", values), digest_of_model("{}", values));
  }
}

TEST(ModelBytes, ABrokenDifferenceIsRefused) {
  const auto base = random_values(500, ModelType::float32, 6);
  auto difference = model_difference(later(base, ModelType::float32), base, ModelType::float32);
  for (std::size_t size = 0; size < difference.size(); size += 97)
    EXPECT_FALSE(model_after(ConstBytes(difference).first(size), base, ModelType::float32));
  const auto longer = random_values(501, ModelType::float32, 6);
  EXPECT_FALSE(model_after(difference, longer, ModelType::float32));
  EXPECT_FALSE(model_after(difference, std::span(base).first(499), ModelType::float32));
}

TEST(ClientPlan, IsTheSameAfterJson) {
  const ClientPlan plan{.epochs = 3,
                        .batch_size = 10,
                        .optimizer = R"({"name":"sgd","learning_rate":0.1})",
                        .proximal = 0.3,
                        .order_seed = 0xFFFFFFFFFFFFFFFF,
                        .partial = Partial::drop,
                        .update = {.bits = 8, .rotate = true, .keep = 0.25, .clip = 0.01},
                        .range = 1.0 / 3,
                        .round_seed = 1,
                        .rounding_seed = 0x8000000000000001,
                        .is_bf16 = true,
                        .draws = 13,
                        .model = {std::byte{0xAB}, std::byte{7}}};
  const auto read = client_plan_from_json(to_json(plan));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(*read, plan);
  EXPECT_FALSE(client_plan_from_json("{}"));
  const ModelDescription description{.tensors = {{"0.weight", {3, 4}}, {"scale", {}}},
                                     .configuration = R"({"seed":1})"};
  const auto told = model_description_from_json(to_json(description));
  ASSERT_TRUE(told) << told.error().message;
  EXPECT_EQ(*told, description);
}

}  // namespace
}  // namespace gradwire::federated
