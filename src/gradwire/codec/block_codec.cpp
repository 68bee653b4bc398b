#include "gradwire/codec/block_codec.h"

#include <algorithm>
#include <array>
#include <bit>

#include <fmt/format.h>

#include "gradwire/base/check.h"
#include "gradwire/base/random.h"
#include "gradwire/base/vectorized.h"

namespace gradwire::codec {
namespace {

/// A block's values and padding.
using Scratch = std::array<float, BlockCodec::kMaxBlock + BlockCodec::kPadding>;

/// A different seed for each block, derived from the common one.
std::uint64_t block_seed(std::uint64_t seed, std::size_t block) {
  return Random(seed + 0xD1B54A32D192ED03u * (block + 1)).next();
}

GRADWIRE_VECTORIZED
void add_to(float* __restrict values, const float* __restrict more, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) values[i] += more[i];
}

/// x = x - y, or zero where that is not finite.
GRADWIRE_VECTORIZED
void subtract_from(float* __restrict x, const float* __restrict y, std::size_t n) {
  constexpr std::uint32_t kExponent = 0x7F800000u;
  for (std::size_t i = 0; i < n; ++i) {
    const auto bits = std::bit_cast<std::uint32_t>(x[i] - y[i]);
    x[i] = std::bit_cast<float>((bits & kExponent) == kExponent ? 0 : bits);
  }
}

}  // namespace

std::size_t BlockCodec::encoded_bytes(std::size_t count) const {
  const std::size_t size = block_size();
  const std::size_t rest = count % size;
  return count / size * block_bytes(size) + (rest > 0 ? block_bytes(rest) : 0);
}

void BlockCodec::encode(std::span<const float> values, std::span<float> residual,
                        std::uint64_t seed, Bytes encoded) const {
  GRADWIRE_CHECK(encoded.size() == encoded_bytes(values.size()));
  GRADWIRE_CHECK(residual.empty() || residual.size() == values.size());
  const std::size_t size = block_size();
  const bool has_residual = !residual.empty();
  std::byte* out = encoded.data();
  for (std::size_t at = 0; at < values.size(); at += size) {
    const std::size_t n = std::min(size, values.size() - at);
    const std::uint64_t own_seed = block_seed(seed, at / size);
    float* const sum = has_residual ? residual.data() + at : nullptr;
    if (has_residual) add_to(sum, values.data() + at, n);
    if (n < size) {
      encode_last(has_residual ? sum : values.data() + at, sum, n, own_seed, out);
    } else if (has_residual) {
      encode_block(sum, n, own_seed, out);
      subtract_block(out, n, own_seed, sum);
    } else {
      encode_block(values.data() + at, n, own_seed, out);
    }
    out += block_bytes(n);
  }
}

void BlockCodec::encode_last(const float* x, float* residual, std::size_t n, std::uint64_t seed,
                             std::byte* encoded) const {
  alignas(64) Scratch padded;
  std::copy_n(x, n, padded.data());
  std::fill_n(padded.data() + n, kPadding, 0.0F);
  encode_block(padded.data(), n, seed, encoded);
  if (residual != nullptr) subtract_block(encoded, n, seed, residual);
}

bool BlockCodec::add_block(const std::byte* encoded, std::size_t n, std::uint64_t seed,
                           float* y) const {
  alignas(64) Scratch decoded;
  if (!decode_block(encoded, n, seed, decoded.data())) return false;
  add_to(y, decoded.data(), n);
  return true;
}

void BlockCodec::subtract_block(const std::byte* encoded, std::size_t n, std::uint64_t seed,
                                float* x) const {
  alignas(64) Scratch decoded;
  decode_block(encoded, n, seed, decoded.data());
  subtract_from(x, decoded.data(), n);
}

Status BlockCodec::decode(ConstBytes encoded, std::uint64_t seed, std::span<float> values) const {
  GRADWIRE_RETURN_IF_ERROR(check_size(encoded, values.size()));
  const std::size_t size = block_size();
  const std::byte* in = encoded.data();
  for (std::size_t at = 0; at < values.size(); at += size) {
    const std::size_t n = std::min(size, values.size() - at);
    const std::uint64_t own_seed = block_seed(seed, at / size);
    if (n == size) {
      if (!decode_block(in, n, own_seed, values.data() + at)) return damaged(at / size);
    } else {
      alignas(64) Scratch decoded;
      if (!decode_block(in, n, own_seed, decoded.data())) return damaged(at / size);
      std::copy_n(decoded.data(), n, values.data() + at);
    }
    in += block_bytes(n);
  }
  return {};
}

Status BlockCodec::decode_add(ConstBytes encoded, std::uint64_t seed,
                              std::span<float> values) const {
  GRADWIRE_RETURN_IF_ERROR(check_size(encoded, values.size()));
  const std::size_t size = block_size();
  const std::byte* in = encoded.data();
  for (std::size_t at = 0; at < values.size(); at += size) {
    const std::size_t n = std::min(size, values.size() - at);
    if (!add_block(in, n, block_seed(seed, at / size), values.data() + at)) {
      return damaged(at / size);
    }
    in += block_bytes(n);
  }
  return {};
}

Status BlockCodec::check_size(ConstBytes encoded, std::size_t count) const {
  if (encoded.size() == encoded_bytes(count)) return {};
  return failure(ErrorKind::corrupted,
                 fmt::format("{}: {} values have {} encoded bytes, expected {}", name(), count,
                             encoded.size(), encoded_bytes(count)));
}

Status BlockCodec::damaged(std::size_t block) const {
  return failure(ErrorKind::corrupted,
                 fmt::format("{}: block {} is not a valid encoding: check that all ranks run the "
                             "same version",
                             name(), block));
}

namespace {

class FormattedCodec final : public BlockCodec {
 public:
  explicit FormattedCodec(const BlockFormat& format) : format_(format) {}
  std::string name() const override { return std::string(format_.name); }
  bool wants_feedback() const override { return format_.wants_feedback; }

 private:
  std::size_t block_size() const override { return format_.block_size; }
  std::size_t block_bytes(std::size_t n) const override {
    return format_.header_bytes + (n * format_.bits + 7) / 8;
  }
  void encode_block(const float* x, std::size_t n, std::uint64_t, std::byte* out) const override {
    format_.encode(x, n, out);
  }
  bool decode_block(const std::byte* in, std::size_t n, std::uint64_t, float* y) const override {
    format_.decode(in, n, y);
    return true;
  }

  BlockFormat format_;
};

}  // namespace

std::unique_ptr<Codec> block_codec(const BlockFormat& format) {
  return std::make_unique<FormattedCodec>(format);
}

}  // namespace gradwire::codec
