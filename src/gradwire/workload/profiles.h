#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "gradwire/workload/layer_profile.h"

namespace gradwire::workload {

/// The built-in profiles of models, with their real parameters. Time is split by multiplications
/// (for one image or sequence, those of a layer's matrix products). A third of a step is forward
/// and two thirds are backward, which has two products where forward has one.

/// "resnet50", "resnet101", "vit_s", "vit_b", "gpt2".
std::vector<std::string_view> profile_names();

/// LAYERS layers of BYTES bytes of float32 each, all of the same time: "uniform:16x6250000" is 100
/// MB in 16 layers. Each has one matrix. Throws Exception(invalid_argument).
LayerProfile uniform_profile(const std::string& name);

/// Returns the built-in profile of that name ("uniform:..." too), otherwise reads the file of that
/// name. Throws Exception: invalid_argument, which lists the names, or what read_profile throws.
LayerProfile profile_named(const std::string& name_or_path);

/// Multiplications of one forward pass of a built-in model, without those of biases and
/// normalizations: "4.1 G" for ResNet-50. Throws Exception(invalid_argument) for other names.
double profile_multiplications(std::string_view name);

/// ResNet as in torchvision (He et al., CVPR 2016, table 1), with the stride in the 3 x 3
/// convolution, on images of 224 x 224. `blocks`: of each stage, {3, 4, 6, 3} for ResNet-50.
struct CountedProfile {
  LayerProfile profile;
  double multiplications = 0;
};
CountedProfile resnet_profile(const std::string& name, const std::vector<int>& blocks);

/// ViT with patches of 16 x 16 on images of 224 x 224, 12 layers (Dosovitskiy et al., ICLR 2021):
/// `width` 768 is ViT-B, 384 ViT-S.
CountedProfile vit_profile(const std::string& name, int width);

/// GPT-2 small (Radford et al., 2019) on sequences of 1024 tokens. Its output layer uses the weight
/// of the embedding, whose gradient is therefore complete last and needed first.
CountedProfile gpt2_profile();

}  // namespace gradwire::workload
