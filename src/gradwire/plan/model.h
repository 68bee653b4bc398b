#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "gradwire/gradient/layer_profile.h"

namespace gradwire {

/// A piece of a model that is computed in one go, as a planner sees it: sizes, no values.
struct ModelLayer {
  std::string name;
  std::int64_t parameters = 0;  ///< Elements.
  /// Floating-point operations of forward for one sample, two a multiplication and addition; 0 in
  /// models recorded from a run, whose time is known instead. Backward has twice as many.
  double flops = 0;
  double forward = 0;   ///< Share of a step's compute time: those of a model add up to 1.
  double backward = 0;  ///< Likewise.
  double outputs = 0;   ///< Elements for one sample that go to the next layer; 0: not known.
  double kept = 0;      ///< Elements for one sample that backward needs; 0: not known.
};

/// What tensor parallelism needs to know of a transformer; all 0 in other models.
struct TransformerShape {
  int layers = 0;
  int width = 0;  ///< Elements of a token between layers.
  int heads = 0;
  int tokens = 0;      ///< Of a sample.
  int vocabulary = 0;  ///< Of those that are like GPT-2; 0: another kind.

  bool operator==(const TransformerShape&) const = default;
};

/// A model as a list of layers in the order of forward.
struct ModelShape {
  std::string name;
  std::vector<ModelLayer> layers;
  std::string sample = "sample";  ///< What one is, for people: "image of 224 x 224".
  double tokens = 1;              ///< Of a sample: those of a text, otherwise 1.
  double sample_bytes = 0;        ///< Of a sample as it is stored; 0: not known.
  TransformerShape transformer;
  /// Of the forward and backward pass that was recorded; 0: none was, the layers have `flops`.
  double recorded_seconds = 0;

  std::int64_t parameters() const;
  double forward_flops() const;  ///< For one sample.
  double kept() const;           ///< Elements for one sample.
  bool recorded() const { return forward_flops() == 0; }
};

/// A model whose layers' parameters, flops, outputs and kept are set: sets their shares, a third
/// of each for forward.
void set_shares(ModelShape& model);

/// A profile that `gradwire train --record-profile` wrote. Outputs and flops are not known.
ModelShape model_of(const LayerProfile& profile);

/// Names of the built-in models: "resnet50", "bert_base", "llama2_7b", ...
std::vector<std::string_view> model_names();

/// A built-in model; or "transformer:layers=24,width=1024,heads=16,tokens=512,vocabulary=50257"
/// with any of these left out; or the file of a recorded profile. '-' and '_' in a name are the
/// same, and so are upper and lower case. Throws Exception(invalid_argument): an unknown name or
/// key, with the nearest right one, a value out of range; what read_profile throws.
ModelShape model_named(const std::string& name);

/// Only a number of parameters: 2 flops a parameter and token in forward (Kaplan et al.,
/// "Scaling Laws for Neural Language Models", arXiv:2001.08361, section 2.1), samples of 2048
/// tokens, 32 layers of equal size. Activations are not known.
ModelShape model_of_size(double parameters);

/// "7.5B", "350M", "25557032": a number of parameters. Throws Exception(invalid_argument).
double parse_count(const std::string& text);

/// "25.6 M", "6.74 B".
std::string format_count(double count);

}  // namespace gradwire
