#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "gradwire/codec/codec.h"

namespace gradwire {

/// A codec that takes blocks of values by themselves, so that everything about one happens in the
/// processor's first cache: what is lost is found by decoding the block again at once. A codec says
/// how one block is encoded and decoded; the rest is here.
///
/// Blocks lie one after the other: all have block_size() values but the last. A block with a value
/// that is not finite may be decoded to values that are not, all of them; nothing of it is carried
/// on, so that one bad step does not spoil those after it.
class BlockCodec : public Codec {
 public:
  /// No codec's blocks are larger.
  static constexpr std::size_t kMaxBlock = 8192;
  /// Values that may be read and written behind a block's last one.
  static constexpr std::size_t kPadding = 64;

  std::size_t encoded_bytes(std::size_t count) const final;
  void encode(std::span<const float> values, std::span<float> carry, std::uint64_t seed,
              Bytes encoded) const final;
  Status decode(ConstBytes encoded, std::uint64_t seed, std::span<float> values) const final;
  Status decode_add(ConstBytes encoded, std::uint64_t seed, std::span<float> values) const final;

 protected:
  /// A multiple of 16.
  virtual std::size_t block_size() const = 0;

  /// Bytes that a block of n values takes, 1 <= n <= block_size().
  virtual std::size_t block_bytes(std::size_t n) const = 0;

  /// Encodes x[0 .. n). If n < block_size(), zeros follow: at least kPadding of them.
  virtual void encode_block(const float* x, std::size_t n, std::uint64_t seed,
                            std::byte* encoded) const = 0;

  /// The opposite. If n < block_size(), y has room for kPadding values more, of any content. False,
  /// if `encoded` cannot be what encode_block() made; it is never read beyond its block_bytes(n).
  virtual bool decode_block(const std::byte* encoded, std::size_t n, std::uint64_t seed,
                            float* y) const = 0;

  // A codec that leaves out most values has shorter ways than these, by decode_block().

  /// y[i] += what was encoded, for i < n. False as decode_block(), and y is as it was.
  virtual bool add_block(const std::byte* encoded, std::size_t n, std::uint64_t seed,
                         float* y) const;

  /// x[i] -= what encode_block() made of it, or zero where that is not finite, for i < n: what was
  /// lost.
  virtual void take_out_block(const std::byte* encoded, std::size_t n, std::uint64_t seed,
                              float* x) const;

 private:
  /// Encodes n < block_size() values; in `lost`, if it is not null, are the same values before, and
  /// afterwards what was lost of them.
  void encode_last(const float* x, float* lost, std::size_t n, std::uint64_t seed,
                   std::byte* encoded) const;
  Status check_size(ConstBytes encoded, std::size_t count) const;
  Status damaged(std::size_t block) const;
};

}  // namespace gradwire
