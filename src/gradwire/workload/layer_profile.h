#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "gradwire/base/types.h"

namespace gradwire::workload {

/// A parameter of a model, without its values.
struct ProfileTensor {
  std::string name;                 ///< Name in the model: "layer1.0.conv1.weight".
  std::vector<std::int64_t> shape;  ///< Shape in libtorch; empty: a scalar.

  std::size_t count() const;    ///< Elements.
  std::size_t rows() const;     ///< Rows as a matrix: the first dimension ...
  std::size_t columns() const;  ///< ... and all others together.
};

/// A part of a model that is computed as one unit, in forward and in backward.
struct ProfileLayer {
  std::string name;
  std::vector<ProfileTensor> parameters;
  double forward = 0;   ///< Share of a step's compute time: all shares of a profile sum to 1.
  double backward = 0;  ///< Likewise.
};

/// The content of a training step: the layers in the order of forward, with the time of each. A
/// parameter that is used several times belongs to the first layer that uses it, which completes
/// its gradient last.
struct LayerProfile {
  std::string name;
  std::vector<ProfileLayer> layers;
  Duration compute{};  ///< Time of the recorded step; 0: unknown.

  std::size_t parameters() const;  ///< Elements.
  std::size_t tensors() const;
};

/// Scales the shares so that they sum to 1. Throws Exception(invalid_argument) with the name of the
/// profile if that is impossible: no layers, a negative or non-finite share, or all shares zero.
void normalize_shares(LayerProfile& profile);

/// Converts a profile to JSON (docs/ladder.md) and back. `source`: its name in errors. Shares in
/// JSON need not sum to 1. Throws Exception(invalid_argument) that names the layer and the key.
std::string to_json(const LayerProfile& profile);
LayerProfile parse_profile(std::string_view json, const std::string& source);

/// Reads and writes a profile file. Throws Exception(system) if that fails.
LayerProfile read_profile(const std::string& path);
void write_profile(const LayerProfile& profile, const std::string& path);

}  // namespace gradwire::workload
