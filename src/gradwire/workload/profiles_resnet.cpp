#include <fmt/format.h>

#include "gradwire/workload/profiles_builder.h"

namespace gradwire::workload {
namespace {

constexpr int kExpansion = 4;  ///< Output channels of a block per channel of its middle layer.

/// A model under construction, and the shape of the next layer's input.
struct Trunk {
  ProfileBuilder builder;
  int channels = 3;
  int side = 224;  ///< Images are squares.
};

struct Convolution {
  std::string name, norm;
  int from = 0, to = 0, kernel = 1;
  int side = 0;  ///< Side of the output.
};

/// A convolution without bias, and the batch normalization after it.
void add(ProfileBuilder& builder, const Convolution& c) {
  const double per_place = static_cast<double>(c.from) * c.to * c.kernel * c.kernel;
  builder.add(c.name,
              {weight(c.name, {c.to, c.from, c.kernel, c.kernel}), weight(c.norm, {c.to}),
               bias(c.norm, c.to)},
              per_place * c.side * c.side);
}

/// A bottleneck block: 1 x 1 down to `width` channels, 3 x 3, 1 x 1 up again. If input and output
/// shapes differ, a convolution on the shortcut converts one to the other.
void add_block(Trunk& trunk, const std::string& name, int width, int stride) {
  const int in = trunk.channels, out = width * kExpansion;
  const int side = trunk.side / stride;
  const auto convolution = [&](int number, int from, int to, int kernel, int output_side) {
    add(trunk.builder, {fmt::format("{}.conv{}", name, number),
                        fmt::format("{}.bn{}", name, number), from, to, kernel, output_side});
  };
  convolution(1, in, width, 1, trunk.side);
  convolution(2, width, width, 3, side);
  convolution(3, width, out, 1, side);
  if (in != out || stride != 1)
    add(trunk.builder, {name + ".downsample.0", name + ".downsample.1", in, out, 1, side});
  trunk.channels = out;
  trunk.side = side;
}

}  // namespace

CountedProfile resnet_profile(const std::string& name, const std::vector<int>& blocks) {
  Trunk trunk{.builder = ProfileBuilder(name)};
  add(trunk.builder, {"conv1", "bn1", 3, 64, 7, 112});
  trunk.channels = 64;
  trunk.side = 56;  // After the pooling.
  for (std::size_t stage = 0; stage < blocks.size(); ++stage) {
    const int width = 64 << stage;
    for (int block = 0; block < blocks[stage]; ++block) {
      const int stride = stage > 0 && block == 0 ? 2 : 1;
      add_block(trunk, fmt::format("layer{}.{}", stage + 1, block), width, stride);
    }
  }
  constexpr int classes = 1000;
  trunk.builder.add("fc", {weight("fc", {classes, trunk.channels}), bias("fc", classes)},
                    static_cast<double>(classes) * trunk.channels);
  return trunk.builder.finish();
}

}  // namespace gradwire::workload
