#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "gradwire/base/bytes.h"
#include "gradwire/base/error.h"

namespace gradwire::codec {

/// Lossy compression of float32 values: a rank's contribution on its way to the owner of a chunk,
/// and the mean on its way from the owner to all ranks. Values are encoded once, forwarded
/// unchanged and decoded alike on all ranks, so all ranks end with the same bits.
///
/// Codecs are stateless and thread-safe. The caller keeps the error-feedback residual.
/// Randomness comes from `seed`, which both ends know: one seed for all ranks' contributions to a
/// chunk and for their mean. A value that is not finite is decoded as not finite (other values of
/// its block may be too), never as a finite number.
class Codec {
 public:
  virtual ~Codec() = default;

  /// Name in the catalogue: "int8", "top_k".
  virtual std::string name() const = 0;

  /// Encoded size of `count` values in bytes. Depends on nothing else, so that both ends know it.
  virtual std::size_t encoded_bytes(std::size_t count) const = 0;

  /// Encodes values[i] + residual[i] and leaves the new residual in residual[i] (error feedback:
  /// Seide et al., Interspeech 2014; Karimireddy et al., ICML 2019). An empty `residual` counts as
  /// zeros, and the new one is discarded. `encoded` has encoded_bytes(values.size()) bytes.
  virtual void encode(std::span<const float> values, std::span<float> residual, std::uint64_t seed,
                      Bytes encoded) const = 0;

  /// values[i] = decoded value i. Fails with corrupted if `encoded` is not an output of encode().
  virtual Status decode(ConstBytes encoded, std::uint64_t seed, std::span<float> values) const = 0;

  /// values[i] += decoded value i. Fails as decode().
  virtual Status decode_add(ConstBytes encoded, std::uint64_t seed,
                            std::span<float> values) const = 0;

  /// Returns true if the residual of a step should be carried into the next one (error feedback).
  virtual bool wants_feedback() const = 0;

  /// Returns the codec for the mean of `ranks` contributions if it differs: sparse values become
  /// denser when reduced. Null: this codec.
  virtual std::unique_ptr<Codec> for_mean(int /*ranks*/) const { return nullptr; }
};

}  // namespace gradwire::codec
