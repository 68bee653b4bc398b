#include "gradwire/plan/model.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/base/error.h"
#include "gradwire/workload/profiles.h"

namespace gradwire::plan {
namespace {

using ::testing::HasSubstr;

struct Published {
  const char* name;
  std::int64_t parameters;
};

/// Parameters as counted by torchvision, Hugging Face's transformers and Llama's model cards.
class PublishedCounts : public ::testing::TestWithParam<Published> {};

TEST_P(PublishedCounts, AreTheModels) {
  EXPECT_EQ(model_named(GetParam().name).parameters(), GetParam().parameters);
}

INSTANTIATE_TEST_SUITE_P(
    Models, PublishedCounts,
    ::testing::Values(Published{"resnet50", 25'557'032}, Published{"resnet101", 44'549'160},
                      Published{"vgg16", 138'357'544}, Published{"vit_s", 22'050'664},
                      Published{"vit_b", 86'567'656}, Published{"vit_l", 304'326'632},
                      Published{"bert_base", 109'482'240}, Published{"bert_large", 335'141'888},
                      Published{"gpt2", 124'439'808}, Published{"gpt2_medium", 354'823'168},
                      Published{"gpt2_large", 774'030'080}, Published{"gpt2_xl", 1'557'611'200},
                      Published{"llama2_7b", 6'738'415'616},
                      Published{"llama2_13b", 13'015'864'320},
                      Published{"llama2_70b", 68'976'648'192}),
    [](const auto& instance) { return instance.param.name; });

/// Multiplications and additions for one image, in 10^9, as in the papers and torchvision.
TEST(Models, NeedThePublishedOperations) {
  const std::pair<const char*, double> published[] = {{"resnet50", 4.09},
                                                      {"resnet101", 7.80},
                                                      {"vgg16", 15.47},
                                                      {"vit_b", 17.56},
                                                      {"vit_l", 61.55}};
  for (const auto& [name, giga] : published)
    EXPECT_NEAR(model_named(name).forward_flops() / 2e9, giga, 0.015 * giga) << name;
}

TEST(Models, AgreeWithTheProfilesOfBenchStep) {
  for (const std::string_view name : workload::profile_names()) {
    const ModelShape model = model_named(std::string(name));
    EXPECT_EQ(model.parameters(),
              static_cast<std::int64_t>(workload::profile_named(std::string(name)).parameters()))
        << name;
    const double flops = 2 * workload::profile_multiplications(name);
    EXPECT_NEAR(model.forward_flops(), flops, 1e-9 * flops) << name;
  }
}

TEST(Models, ActivationsAreThePublishedOnes) {
  // He et al.'s network has 11.1 M convolution outputs for an image of 224 x 224.
  const ModelShape resnet = model_named("resnet50");
  double outputs = 0;
  for (const ModelLayer& layer : resnet.layers) outputs += layer.outputs;
  EXPECT_NEAR(outputs, 11.1e6, 0.1e6);
  // Korthikanti et al.: 34 s b h bytes of 16 bits per block.
  const ModelShape gpt = model_named("transformer:layers=3,width=512,heads=8,tokens=128");
  double blocks = 0;
  for (const ModelLayer& layer : gpt.layers)
    if (layer.name.starts_with("layers.")) blocks += 2 * layer.kept;
  EXPECT_DOUBLE_EQ(blocks, 3 * 34.0 * 128 * 512);
}

TEST(Models, ACutInsideABlockPassesTheSkipConnectionToo) {
  const ModelShape model = model_named("resnet50");
  const auto crossing = [&](const std::string& name) {
    const auto layer = std::ranges::find(model.layers, name, &ModelLayer::name);
    return layer == model.layers.end() ? -1 : layer->crossing();
  };
  EXPECT_EQ(crossing("conv1"), 64 * 56 * 56);
  EXPECT_EQ(crossing("layer4.2.conv1"), (512 + 2048) * 7 * 7);
  EXPECT_EQ(crossing("layer4.2.conv3"), 2048 * 7 * 7);
  EXPECT_EQ(crossing("layer2.0.conv3"), 512 * 28 * 28 + 256 * 56 * 56);
  EXPECT_EQ(crossing("layer2.0.downsample.0"), 512 * 28 * 28);
}

TEST(Models, SharesAddUpToOne) {
  for (const std::string_view name : model_names()) {
    double shares = 0;
    for (const ModelLayer& layer : model_named(std::string(name)).layers)
      shares += layer.forward + layer.backward;
    EXPECT_NEAR(shares, 1, 1e-9) << name;
  }
}

TEST(Models, NamesAreReadAsPeopleWriteThem) {
  EXPECT_EQ(model_named("ResNet-50").name, "resnet50");
  EXPECT_EQ(model_named("GPT2-XL").name, "gpt2_xl");
  EXPECT_EQ(model_named("llama-7b").parameters(), 6'738'415'616);
  EXPECT_EQ(model_named("llama2_7b:tokens=1024").tokens, 1024);
  EXPECT_EQ(model_named("transformer:layers=24,width=1024,heads=16").parameters(), 354'823'168);
}

std::string refusal(const std::string& name) {
  try {
    model_named(name);
  } catch (const Exception& e) {
    EXPECT_EQ(e.kind(), ErrorKind::invalid_argument);
    return e.what();
  }
  return "nothing";
}

TEST(Models, UnknownOnesAreRefusedWithTheNearest) {
  EXPECT_THAT(refusal("resnet5O"), HasSubstr("did you mean \"resnet50\""));
  EXPECT_THAT(refusal("transformer:layer=3"), HasSubstr("did you mean \"layers\""));
  EXPECT_THAT(refusal("transformer:layers=0"), HasSubstr("from 1 to 10000"));
  EXPECT_THAT(refusal("transformer:layers=3x"), HasSubstr("whole number"));
  EXPECT_THAT(refusal("transformer:width=100,heads=3"), HasSubstr("do not divide"));
  EXPECT_THAT(refusal("gpt2:layers=3"), HasSubstr("tokens"));
  EXPECT_THAT(refusal("vgg16:layers=3"), HasSubstr("no settings"));
}

TEST(Models, ProfilesKeepTheirTimes) {
  const workload::LayerProfile profile = workload::parse_profile(
      R"({"name": "mine", "compute_ms": 180, "layers": [
          {"name": "a", "forward": 1, "backward": 2,
           "parameters": [{"name": "w", "shape": [3, 4]}]},
          {"name": "b", "forward": 3, "backward": 4, "parameters": []}]})",
      "mine.json");
  const ModelShape model = model_of(profile);
  EXPECT_EQ(model.parameters(), 12);
  EXPECT_TRUE(model.recorded());
  EXPECT_DOUBLE_EQ(model.recorded_seconds, 0.18);
  EXPECT_DOUBLE_EQ(model.layers[1].backward, 0.4);
}

TEST(Counts, AreReadAndWritten) {
  EXPECT_EQ(parse_count("7.5B"), 7.5e9);
  EXPECT_EQ(parse_count("350m"), 350e6);
  EXPECT_EQ(parse_count("25557032"), 25557032);
  EXPECT_EQ(model_of_size(7.5e9).parameters(), 7'500'000'000);
  EXPECT_EQ(format_count(25557032), "25.6 M");
  for (const char* wrong : {"", "B", "0", "-1B", "7.5Q", "7.5 GB", "1e30"})
    EXPECT_THROW(parse_count(wrong), Exception) << wrong;
}

}  // namespace
}  // namespace gradwire::plan
