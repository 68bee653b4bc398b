#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <torch/torch.h>

#include "gradwire/codec/codec.h"
#include "gradwire/train/pipeline/pipeline.h"

namespace gradwire {

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
