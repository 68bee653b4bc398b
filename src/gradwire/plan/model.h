#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "gradwire/workload/layer_profile.h"

namespace gradwire::plan {

/// A part of a model that is computed as a unit: sizes, no values.
struct ModelLayer {
  std::string name;
  std::int64_t parameters = 0;  ///< Number of elements.
  /// Floating-point operations of forward for one sample, 2 per multiply-add. 0 in models recorded
  /// from a run, whose time is known instead. Backward has twice as many.
  double flops = 0;
  double forward = 0;   ///< Share of the compute time; all shares of a model sum to 1.
  double backward = 0;  ///< Share of the compute time.
  double outputs = 0;   ///< Elements per sample passed to the next layer; 0: unknown.
  /// Elements per sample that pass to the next stage if a pipeline is cut here, with skip
  /// connections and after pooling; 0: as outputs.
  double cut = 0;
  double kept = 0;  ///< Elements per sample kept for backward; 0: unknown.

  double crossing() const { return cut > 0 ? cut : outputs; }
};

/// Shape of a transformer, for tensor parallelism; all 0 in other models.
struct TransformerShape {
  int layers = 0;
  int width = 0;  ///< Elements per token between layers.
  int heads = 0;
  int tokens = 0;      ///< Per sample.
  int vocabulary = 0;  ///< Vocabulary of models like GPT-2; 0: another kind.

  bool operator==(const TransformerShape&) const = default;
};

/// A model: layers in the order of forward.
struct ModelShape {
  std::string name;
  std::vector<ModelLayer> layers;
  std::string sample = "sample";  ///< Description of one, for users: "image of 224 x 224".
  double tokens = 1;              ///< Per sample of a text, otherwise 1.
  double sample_bytes = 0;        ///< Size of a sample in storage; 0: unknown.
  TransformerShape transformer;
  /// Seconds of the recorded forward and backward pass; 0: not recorded.
  double recorded_seconds = 0;

  std::int64_t parameters() const;
  double forward_flops() const;  ///< Per sample.
  double kept() const;           ///< Elements per sample.
  bool recorded() const { return forward_flops() == 0; }
};

/// Sets the time shares of layers from their flops: one part forward, two parts backward. The
/// layers' other members must be set.
void set_shares(ModelShape& model);

/// Returns the model with each block of a transformer as one layer, "block0", ...: `gradwire train`
/// has them as layers, between which a pipeline is cut.
ModelShape with_blocks(ModelShape model);

/// Returns the model of a profile that `gradwire train --record-profile` wrote. Outputs and flops
/// are unknown.
ModelShape model_of(const workload::LayerProfile& profile);
/// Returns a model's profile. Each layer has one tensor, a matrix, because codecs do not compress
/// vectors.
workload::LayerProfile profile_of(const ModelShape& model);

/// Returns the names of the built-in models: "resnet50", "bert_base", "llama2_7b", ...
std::vector<std::string_view> model_names();

/// Returns a built-in model, a transformer with settings, or the model of a recorded profile's
/// file. Settings are "transformer:layers=24,width=1024,heads=16,tokens=512,vocabulary=50257", each
/// optional. In names, '-' and '_' are equivalent, and case is ignored. Throws
/// Exception(invalid_argument): an unknown name or key, with the nearest valid one, or a value out
/// of range. Also throws what read_profile() throws.
ModelShape model_named(const std::string& name);

/// Returns a model of a number of parameters: 2 flops per parameter and token in forward (Kaplan et
/// al., "Scaling Laws for Neural Language Models", arXiv:2001.08361, section 2.1), samples of 2048
/// tokens, 32 layers of equal size. Activations are unknown.
ModelShape model_of_size(double parameters);

/// Parses a number of parameters: "7.5B", "350M", "25557032". Throws Exception(invalid_argument).
double parse_count(const std::string& text);

/// Formats a count: "25.6 M", "6.74 B".
std::string format_count(double count);

}  // namespace gradwire::plan
