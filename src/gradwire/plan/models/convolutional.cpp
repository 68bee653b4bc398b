#include <array>
#include <utility>

#include <fmt/format.h>

#include "gradwire/plan/models/built_in.h"
#include "gradwire/workload/profiles.h"

namespace gradwire::plan {
namespace {

/// Mean JPEG image of ImageNet: 138 GB of 1,281,167 images.
constexpr double kImageBytes = 108e3;
constexpr double kTrainShare = 3;  ///< Forward has a third of the multiplications.

/// A cut inside a block also passes the block's input, which is added to the output of its last
/// layer: "layer2.0.conv1", ..., "layer2.0.conv3" or "layer2.0.downsample.0".
void set_cuts(ModelShape& model) {
  constexpr double kPooling = 4;  // Divisor of the first convolution's output.
  const auto block_of = [](const ModelLayer& layer) {
    return layer.name.substr(0, layer.name.find('.', layer.name.find('.') + 1));
  };
  model.layers.front().cut = model.layers.front().outputs / kPooling;
  double input = model.layers.front().cut;
  for (std::size_t i = 1; i + 1 < model.layers.size(); ++i) {
    ModelLayer& layer = model.layers[i];
    if (block_of(layer) == block_of(model.layers[i + 1])) {
      layer.cut = layer.outputs + input;
    } else {
      input = layer.outputs;
    }
  }
}

}  // namespace

ModelShape resnet_model(const std::string& name, int blocks) {
  const workload::CountedProfile counted = workload::resnet_profile(name, {3, 4, blocks, 3});
  ModelShape model = model_of(counted.profile);
  model.sample = "image of 224 x 224";
  model.sample_bytes = kImageBytes;
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    ModelLayer& layer = model.layers[i];
    const workload::ProfileTensor& weight = counted.profile.layers[i].parameters.front();
    const double multiplications = kTrainShare * layer.forward * counted.multiplications;
    // Each weight is used once per output position.
    const double places = multiplications / static_cast<double>(weight.count());
    layer.flops = 2 * multiplications;
    layer.outputs = places * static_cast<double>(weight.rows());
    // The input of normalization, and the output of ReLU.
    layer.kept = 2 * layer.outputs;
  }
  model.layers.back().kept =
      static_cast<double>(counted.profile.layers.back().parameters[0].columns());
  set_cuts(model);
  set_shares(model);
  return model;
}

ModelShape vgg16_model() {
  ModelShape model{.name = "vgg16", .sample = "image of 224 x 224", .sample_bytes = kImageBytes};
  constexpr std::array<std::pair<int, int>, 5> stages{
      {{2, 64}, {2, 128}, {3, 256}, {3, 512}, {3, 512}}};
  std::int64_t in = 3, side = 224;
  for (const auto& [count, out] : stages) {
    for (int i = 0; i < count; ++i) {
      const std::int64_t weights = in * out * 9, places = side * side;
      model.layers.push_back({.name = fmt::format("features.{}", model.layers.size()),
                              .parameters = weights + out,
                              .flops = 2.0 * static_cast<double>(weights * places),
                              .outputs = static_cast<double>(out * places),
                              .kept = static_cast<double>(out * places)});
      in = out;
    }
    side /= 2;
    model.layers.back().outputs /= 4;  // After pooling.
    model.layers.back().kept += model.layers.back().outputs;
  }
  in *= side * side;
  for (const std::int64_t out : {4096, 4096, 1000}) {
    model.layers.push_back({.name = fmt::format("classifier.{}", model.layers.size() - 13),
                            .parameters = in * out + out,
                            .flops = 2.0 * static_cast<double>(in * out),
                            .outputs = static_cast<double>(out),
                            .kept = 2.0 * static_cast<double>(out)});
    in = out;
  }
  set_shares(model);
  return model;
}

}  // namespace gradwire::plan
