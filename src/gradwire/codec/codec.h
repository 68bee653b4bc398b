#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "gradwire/base/bytes.h"
#include "gradwire/base/error.h"

namespace gradwire {

/// How float32 values travel in fewer bytes: a rank's contribution on its way to the owner of a
/// chunk, and the mean on its way from the owner to all ranks. Encoded once, forwarded verbatim and
/// decoded alike everywhere, so all ranks end with the same bits. Stateless: what was lost is the
/// caller's to keep (`carry`), and randomness comes from `seed`, which both ends know: one for all
/// ranks' contributions to a chunk and for their mean. A value that is not finite comes out not
/// finite (its neighbours may too), never as a finite number. Thread-safe.
class Codec {
 public:
  virtual ~Codec() = default;

  /// As users write it: "int8", "top_k".
  virtual std::string name() const = 0;

  /// Bytes that `count` values take: depends on nothing else, so that both ends know it.
  virtual std::size_t encoded_bytes(std::size_t count) const = 0;

  /// Encodes values[i] + carry[i] and leaves in carry[i] what of that was lost (error feedback:
  /// Seide et al., Interspeech 2014; Karimireddy et al., ICML 2019). An empty `carry` counts as
  /// zeros, and the loss is forgotten. `encoded` has encoded_bytes(values.size()) bytes.
  virtual void encode(std::span<const float> values, std::span<float> carry, std::uint64_t seed,
                      Bytes encoded) const = 0;

  /// values[i] = what was encoded. Errors: corrupted, if `encoded` cannot be what encode() made.
  virtual Status decode(ConstBytes encoded, std::uint64_t seed, std::span<float> values) const = 0;

  /// values[i] += what was encoded. Errors: those of decode().
  virtual Status decode_add(ConstBytes encoded, std::uint64_t seed,
                            std::span<float> values) const = 0;

  /// Whether what is lost of one step should be carried into the next.
  virtual bool wants_feedback() const = 0;

  /// The codec for the mean of `ranks` contributions, if that is another one: what is sparse
  /// becomes denser when it is added up. Null: this one.
  virtual std::unique_ptr<Codec> for_mean(int /*ranks*/) const { return nullptr; }
};

}  // namespace gradwire
