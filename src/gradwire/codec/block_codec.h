#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "gradwire/codec/codec.h"

namespace gradwire::codec {

/// A codec that encodes each block of values independently, so that all work on a block stays in
/// the L1 cache: the residual is found by decoding the block at once. A codec implements encoding
/// and decoding of one block; this class does the rest.
///
/// Blocks are consecutive; all have block_size() values but the last. A block with a value that is
/// not finite may be decoded to values that are all not finite. Its residual is zero, so that one
/// bad step does not spoil later ones.
class BlockCodec : public Codec {
 public:
  /// Maximum block size of any codec.
  static constexpr std::size_t kMaxBlock = 8192;
  /// Number of values beyond a block's last one that may be read and written.
  static constexpr std::size_t kPadding = 64;

  std::size_t encoded_bytes(std::size_t count) const final;
  void encode(std::span<const float> values, std::span<float> residual, std::uint64_t seed,
              Bytes encoded) const final;
  Status decode(ConstBytes encoded, std::uint64_t seed, std::span<float> values) const final;
  Status decode_add(ConstBytes encoded, std::uint64_t seed, std::span<float> values) const final;

 protected:
  /// A multiple of 16.
  virtual std::size_t block_size() const = 0;

  /// Encoded size of a block of n values in bytes, 1 <= n <= block_size().
  virtual std::size_t block_bytes(std::size_t n) const = 0;

  /// Encodes x[0 .. n). If n < block_size(), at least kPadding zeros follow.
  virtual void encode_block(const float* x, std::size_t n, std::uint64_t seed,
                            std::byte* encoded) const = 0;

  /// Decodes n values to y. If n < block_size(), y has room for kPadding more values, of any
  /// content. Returns false if `encoded` is not an output of encode_block(); never reads beyond its
  /// block_bytes(n).
  virtual bool decode_block(const std::byte* encoded, std::size_t n, std::uint64_t seed,
                            float* y) const = 0;

  // The defaults use decode_block(). Sparse codecs override them with faster versions.

  /// y[i] += decoded value i, for i < n. Returns false as decode_block(), and leaves y unchanged
  /// then.
  virtual bool add_block(const std::byte* encoded, std::size_t n, std::uint64_t seed,
                         float* y) const;

  /// x[i] -= decoded value i, or x[i] = 0 where the difference is not finite, for i < n: leaves the
  /// error-feedback residual.
  virtual void subtract_block(const std::byte* encoded, std::size_t n, std::uint64_t seed,
                              float* x) const;

 private:
  /// Encodes n < block_size() values. `residual`, if not null, holds the same values before,
  /// and their residual afterwards.
  void encode_last(const float* x, float* residual, std::size_t n, std::uint64_t seed,
                   std::byte* encoded) const;
  Status check_size(ConstBytes encoded, std::size_t count) const;
  Status damaged(std::size_t block) const;
};

/// A codec whose blocks have a header and a number of bits per value, without random numbers.
struct BlockFormat {
  std::string_view name;
  std::size_t block_size = 1024;
  std::size_t header_bytes = 0;
  std::size_t bits = 8;  ///< Per value.
  bool wants_feedback = true;
  /// The implementations of BlockCodec::encode_block() and decode_block().
  void (*encode)(const float* x, std::size_t n, std::byte* encoded) = nullptr;
  void (*decode)(const std::byte* encoded, std::size_t n, float* y) = nullptr;
};

std::unique_ptr<Codec> block_codec(const BlockFormat& format);

}  // namespace gradwire::codec
