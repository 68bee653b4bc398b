#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "gradwire/base/bytes.h"
#include "gradwire/codec/codec.h"
#include "gradwire/comm/communicator.h"
#include "gradwire/exchange/coded_layout.h"

namespace gradwire::exchange {

/// The codecs of the two directions: for a rank's contribution, and for the mean.
struct CodecPair {
  CodecPair(std::shared_ptr<const codec::Codec> codec, int ranks);

  std::shared_ptr<const codec::Codec> sent;
  std::shared_ptr<const codec::Codec> mean;
};

/// One piece of a unit, in both directions: encode(), exchange(), reduce(), gather(), decode(),
/// in this order, each called when the previous operation is complete. Or in the first direction
/// only: encode(), exchange(), store_mean(). Each rank encodes every value once, and the owner
/// encodes its mean once. Each first adds the error-feedback residual of the step before (two-sided
/// error feedback: DoubleSqueeze, Tang et al., ICML 2019, algorithm 1). The owner reduces in rank
/// order; all ranks, the owner included, decode the same bytes of the mean.
///
/// Encoded parts are padded to multiples of 16 bytes, so that codecs find them aligned.
class CodedPiece {
 public:
  CodedPiece(CodedPieceLayout layout, Rank self);

  const CodedPieceLayout& layout() const { return layout_; }
  CodedRange own() const { return layout_.parts[static_cast<std::size_t>(self_)]; }

  /// Starts a step. `seed`: for the codecs' random numbers; the same on all ranks, different in
  /// each step.
  void begin(const CodecPair& codecs, std::uint64_t seed);

  /// `unit`: all its values; `residual`: of the same count, or empty.
  void encode(std::span<const float> unit, std::span<float> residual);
  Work exchange(Communicator& communicator, const OperationOptions& options);

  /// `residual`: own().count() values, or empty; `scratch` is grown as needed.
  Status reduce(std::span<float> residual, std::vector<float>& scratch);
  Work gather(Communicator& communicator, const OperationOptions& options);

  Status decode(std::span<float> unit) const;

  /// Alternative to reduce(), gather() and decode() after exchange(): writes the mean of own() to
  /// its place in `unit`, uncompressed.
  Status store_mean(std::span<float> unit) const;

 private:
  std::uint64_t seed_of(std::size_t part) const;
  std::size_t ranks() const { return layout_.parts.size(); }
  std::size_t sent_bytes(std::size_t part) const;
  void allocate_buffers();
  Status make_mean(std::span<float> mean) const;

  CodedPieceLayout layout_;
  Rank self_;
  std::shared_ptr<const codec::Codec> sent_codec_;
  std::shared_ptr<const codec::Codec> mean_codec_;
  std::uint64_t seed_ = 0;
  std::size_t mean_bytes_ = 0;  ///< Encoded size of the largest part's mean.

  /// Shared with operations, which outlive this object if a communicator ends late.
  struct SharedBuffer {
    std::shared_ptr<std::byte[]> memory;
    std::size_t size = 0;
    void resize(std::size_t bytes);
    Bytes slice(std::size_t begin, std::size_t count) const;
    LentSpan lend(std::size_t begin, std::size_t count) const;
  };
  SharedBuffer sent_;      ///< This rank's contribution, part by part.
  SharedBuffer received_;  ///< All ranks' contributions to this rank's part.
  SharedBuffer means_;     ///< Means of all parts.
};

}  // namespace gradwire::exchange
