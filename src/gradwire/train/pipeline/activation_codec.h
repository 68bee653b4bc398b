#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <torch/torch.h>

#include "gradwire/codec/codec.h"

namespace gradwire {

/// Codecs of what passes between two ranks of a pipeline, each way: names of codecs of single
/// values (docs/compression.md), or "none". One name is that of all boundaries between stages;
/// "int8,none,bf16" has one for each. What a skip connection brings has the codec of the boundary
/// before its stage. There is no error feedback: the error of one sample's activation says nothing
/// about the next sample's.
struct ActivationCodecs {
  std::string forward = "none";   ///< Codecs of activations.
  std::string backward = "none";  ///< Codecs of their gradients.
};

/// Encodes tensors of float32 for the network. Thread-safe.
class ActivationCodec {
 public:
  /// Throws Exception(invalid_argument), which lists the known codecs, for any other name, and for
  /// codecs of whole matrices.
  explicit ActivationCodec(const std::string& name);

  /// False for "none", for which the functions below must not be called.
  bool encodes() const { return codec_ != nullptr; }
  /// Returns memory for the encoded bytes of `elements` values: a 1-D tensor of uint8.
  torch::Tensor buffer(std::int64_t elements) const;
  /// `seed`: of codecs with random numbers; the same at both ends.
  torch::Tensor encode(const torch::Tensor& tensor, std::uint64_t seed) const;
  /// Throws Exception(corrupted) if `encoded` is not a result of encode().
  void decode(const torch::Tensor& encoded, std::uint64_t seed, torch::Tensor& tensor) const;

 private:
  std::unique_ptr<codec::Codec> codec_;
};

/// The codec of each boundary. Throws Exception(invalid_argument) for names as ActivationCodec's
/// constructor, and if there are neither one name nor as many as boundaries.
std::vector<ActivationCodec> codecs_of(const std::string& names, int boundaries);

}  // namespace gradwire
