#include <filesystem>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/base/error.h"
#include "gradwire/workload/profiles.h"

namespace gradwire::workload {
namespace {

using ::testing::HasSubstr;

struct Known {
  const char* name;
  std::size_t tensors, parameters;
  double giga;  ///< Multiplications in 10^9, as in the papers and torchvision's tables.
};

class Profiles : public ::testing::TestWithParam<Known> {};

TEST_P(Profiles, HasTheParametersAndTheWorkOfTheRealModel) {
  const LayerProfile profile = profile_named(GetParam().name);
  EXPECT_EQ(profile.tensors(), GetParam().tensors);
  EXPECT_EQ(profile.parameters(), GetParam().parameters);
  EXPECT_NEAR(profile_multiplications(GetParam().name) * 1e-9, GetParam().giga,
              0.02 * GetParam().giga);
}

TEST_P(Profiles, SpendsAThirdInForward) {
  double forward = 0, backward = 0;
  for (const ProfileLayer& layer : profile_named(GetParam().name).layers) {
    forward += layer.forward;
    backward += layer.backward;
  }
  EXPECT_NEAR(forward, 1.0 / 3, 1e-9);
  EXPECT_NEAR(backward, 2.0 / 3, 1e-9);
}

TEST_P(Profiles, NamesEachParameterOnce) {
  std::map<std::string, int> seen;
  for (const ProfileLayer& layer : profile_named(GetParam().name).layers) {
    for (const ProfileTensor& tensor : layer.parameters) ++seen[tensor.name];
  }
  for (const auto& [name, times] : seen) EXPECT_EQ(times, 1) << name;
}

INSTANTIATE_TEST_SUITE_P(BuiltIn, Profiles,
                         ::testing::Values(Known{"resnet50", 161, 25'557'032, 4.09},
                                           Known{"resnet101", 314, 44'549'160, 7.80},
                                           Known{"vit_s", 152, 22'050'664, 4.61},
                                           Known{"vit_b", 152, 86'567'656, 17.58},
                                           Known{"gpt2", 148, 124'439'808, 145.8}),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(Profiles, NameTheKnownOnesWhenOneIsNot) {
  try {
    profile_named("resnet5");
    FAIL();
  } catch (const Exception& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid_argument);
    EXPECT_THAT(error.what(), HasSubstr("did you mean \"resnet50\"?"));
    EXPECT_THAT(error.what(), HasSubstr("gpt2"));
  }
}

TEST(Profiles, CanBeUniform) {
  const LayerProfile profile = profile_named("uniform:16x6250000");
  ASSERT_EQ(profile.layers.size(), 16u);
  EXPECT_EQ(profile.parameters(), 25'000'000u);
  EXPECT_NEAR(profile.layers[7].forward, 1.0 / 48, 1e-12);
  EXPECT_NEAR(profile.layers[7].backward, 2.0 / 48, 1e-12);
  EXPECT_EQ(profile.layers[7].parameters[0].shape, (std::vector<std::int64_t>{1250, 1250}));
  for (const char* wrong : {"uniform:", "uniform:16", "uniform:x4", "uniform:0x4K",
                            "uniform:20000x4", "uniform:2x6", "uniform:2x", "uniform:2xmany"})
    EXPECT_THROW(profile_named(wrong), Exception) << wrong;
}

TEST(LayerProfile, SurvivesAFile) {
  LayerProfile written = profile_named("vit_s");
  written.compute = std::chrono::microseconds(1500);
  const auto path = std::filesystem::temp_directory_path() / "gradwire_profile_test.json";
  write_profile(written, path);
  const LayerProfile read = read_profile(path);
  std::filesystem::remove(path);
  EXPECT_EQ(read.name, "vit_s");
  EXPECT_EQ(read.compute, written.compute);
  ASSERT_EQ(read.layers.size(), written.layers.size());
  for (std::size_t i = 0; i < read.layers.size(); ++i) {
    EXPECT_EQ(read.layers[i].name, written.layers[i].name);
    EXPECT_DOUBLE_EQ(read.layers[i].forward, written.layers[i].forward);
    EXPECT_DOUBLE_EQ(read.layers[i].backward, written.layers[i].backward);
    ASSERT_EQ(read.layers[i].parameters.size(), written.layers[i].parameters.size());
    for (std::size_t p = 0; p < read.layers[i].parameters.size(); ++p)
      EXPECT_EQ(read.layers[i].parameters[p].shape, written.layers[i].parameters[p].shape);
  }
}

TEST(LayerProfile, TakesTimesInAnyUnit) {
  const LayerProfile profile = parse_profile(R"({"name": "two", "layers": [
      {"name": "a", "forward": 2, "backward": 3, "parameters": [{"name": "w", "shape": [3, 2, 2]}]},
      {"name": "b", "forward": 1, "backward": 4, "parameters": [{"name": "s", "shape": []}]}]})",
                                             "test");
  EXPECT_DOUBLE_EQ(profile.layers[0].forward, 0.2);
  EXPECT_DOUBLE_EQ(profile.layers[1].backward, 0.4);
  EXPECT_EQ(profile.parameters(), 13u);
  EXPECT_EQ(profile.layers[0].parameters[0].rows(), 3u);
  EXPECT_EQ(profile.layers[0].parameters[0].columns(), 4u);
  EXPECT_EQ(profile.layers[1].parameters[0].columns(), 1u);
  EXPECT_EQ(profile.compute, Duration::zero());
}

std::string refusal_of(const std::string& json) {
  try {
    parse_profile(json, "F");
  } catch (const Exception& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid_argument);
    return error.what();
  }
  return "";
}

TEST(LayerProfile, RefusesInvalidProfiles) {
  EXPECT_THAT(refusal_of("{"), HasSubstr("F: not valid JSON"));
  EXPECT_THAT(refusal_of("[]"), HasSubstr("layers: expected a list"));
  EXPECT_THAT(refusal_of(R"({"name": "x", "layers": []})"), HasSubstr("take no time"));
  EXPECT_THAT(refusal_of(R"({"name": "x", "layers": [{"name": "a", "parameters": [],
                             "forward": -1}]})"),
              HasSubstr("layers[0].forward: expected a non-negative number"));
  EXPECT_THAT(refusal_of(R"({"name": "x", "layers": [{"name": "a", "forward": 1, "parameters":
                             [{"name": "w", "shape": [1, -2]}]}]})"),
              HasSubstr("layers[0].parameters[0].shape"));
  EXPECT_THAT(refusal_of(R"({"name": "x", "layers": [{"name": "a", "forward": 1, "parameters":
                             [{"name": "w", "shape": [1000000000, 1000000000, 1000000000]}]}]})"),
              HasSubstr("10^12"));
}

}  // namespace
}  // namespace gradwire::workload
