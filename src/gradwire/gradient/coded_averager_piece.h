#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "gradwire/base/bytes.h"
#include "gradwire/codec/codec.h"
#include "gradwire/comm/communicator.h"
#include "gradwire/gradient/coded_averager_layout.h"

namespace gradwire {

/// The codecs of the two ways: a rank's contribution, and the mean.
struct CodecPair {
  CodecPair(std::shared_ptr<const Codec> codec, int ranks);

  std::shared_ptr<const Codec> sent;
  std::shared_ptr<const Codec> mean;
};

/// One piece of a bucket on its two ways: encode(), exchange(), reduce(), gather(), decode(), in
/// this order, each when the operation before it is complete; or on the first alone: encode(),
/// exchange(), keep(). Every value is encoded once by each
/// rank and its mean once by its owner, with what each of them lost before added to it (two-sided
/// error feedback: DoubleSqueeze, Tang et al., ICML 2019, algorithm 1). The owner adds up in the
/// order of ranks; all ranks, it too, decode the same bytes of the mean.
///
/// Encoded parts take multiples of 16 bytes, so that codecs find them aligned.
class CodedPiece {
 public:
  CodedPiece(CodedPieceLayout layout, Rank self);

  const CodedPieceLayout& layout() const { return layout_; }
  CodedRange own() const { return layout_.parts[static_cast<std::size_t>(self_)]; }

  /// What steps draw their random numbers from: the same on all ranks, another for each step.
  void begin(const CodecPair& codecs, std::uint64_t seed);

  /// `bucket`: all of its values; `carry`: as many, or none.
  void encode(std::span<const float> bucket, std::span<float> carry);
  Work exchange(Communicator& communicator, const OperationOptions& options);

  /// `carry`: own().count() values, or none; `scratch` is made large enough.
  Status reduce(std::span<float> carry, std::vector<float>& scratch);
  Work gather(Communicator& communicator, const OperationOptions& options);

  Status decode(std::span<float> bucket) const;

  /// In place of all after exchange(): the mean of own(), in its place. Nothing more is lost of it.
  Status keep(std::span<float> bucket) const;

 private:
  std::uint64_t seed_of(std::size_t part) const;
  std::size_t ranks() const { return layout_.parts.size(); }
  std::size_t sent_bytes(std::size_t part) const;
  void make_room();
  Status make_mean(std::span<float> mean) const;

  CodedPieceLayout layout_;
  Rank self_;
  std::shared_ptr<const Codec> sent_codec_;
  std::shared_ptr<const Codec> mean_codec_;
  std::uint64_t seed_ = 0;
  std::size_t mean_bytes_ = 0;  ///< Of the largest part.

  /// Operations own them too: they outlive this if a communicator ends late.
  struct Room {
    std::shared_ptr<std::byte[]> memory;
    std::size_t size = 0;
    void resize(std::size_t bytes);
    Bytes slice(std::size_t begin, std::size_t count) const;
    LentSpan lend(std::size_t begin, std::size_t count) const;
  };
  Room sent_;      ///< Own contribution, part by part.
  Room received_;  ///< Everybody's contribution to the own part.
  Room means_;     ///< Of all parts.
};

}  // namespace gradwire
