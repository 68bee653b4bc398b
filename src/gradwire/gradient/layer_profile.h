#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "gradwire/base/types.h"

namespace gradwire {

/// A parameter of a model, without its values.
struct ProfileTensor {
  std::string name;                 ///< As the model calls it: "layer1.0.conv1.weight".
  std::vector<std::int64_t> shape;  ///< As libtorch has it; empty: a scalar.

  std::size_t count() const;    ///< Elements.
  std::size_t rows() const;     ///< As a matrix: the first dimension ...
  std::size_t columns() const;  ///< ... and all others together.
};

/// A piece of a model that is computed in one go, in forward as in backward.
struct ProfileLayer {
  std::string name;
  std::vector<ProfileTensor> parameters;
  double forward = 0;   ///< Share of a step's compute time: those of a profile add up to 1.
  double backward = 0;  ///< Likewise.
};

/// What a training step consists of: the layers in the order of forward, with the time that each
/// takes. A parameter that is used several times belongs to the first layer that uses it, which
/// gets its gradient last.
struct LayerProfile {
  std::string name;
  std::vector<ProfileLayer> layers;
  Duration compute{};  ///< Of the step that was recorded; 0: unknown.

  std::size_t parameters() const;  ///< Elements.
  std::size_t tensors() const;
};

/// Scales the shares so that they add up to 1. Throws Exception(invalid_argument), with the name of
/// the profile, if that cannot be done: no layers, a share that is negative or not finite, all
/// zero.
void normalise_shares(LayerProfile& profile);

/// A profile as JSON (docs/ladder.md), and back. `source` is what errors call it. Shares need not
/// add up to 1 there. Throws Exception(invalid_argument), which names the layer and the key.
std::string to_json(const LayerProfile& profile);
LayerProfile parse_profile(std::string_view json, const std::string& source);

/// The same from and to a file. Throws Exception(system) if it cannot be read or written.
LayerProfile read_profile(const std::string& path);
void write_profile(const LayerProfile& profile, const std::string& path);

}  // namespace gradwire
