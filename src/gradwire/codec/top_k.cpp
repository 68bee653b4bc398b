// top_k: the largest values and their indexes (Aji and Heafield, "Sparse communication for
// distributed gradient descent", EMNLP 2017; with local accumulation of the other values: Lin et
// al., "Deep gradient compression", ICLR 2018, 3). It keeps the largest FRACTION of each block of
// 4096 values, so that the encoded size is known beforehand. The mean of P ranks has up to P times
// as many values. It is sent in the same format, or dense where that is smaller (Renggli et al.,
// "SparCML", SC 2019, 5). Values are bf16; the error of rounding and selection becomes the
// residual. Block format: the places of the kept values, in the shortest of three ways: nothing if
// all are kept, a bit per value, or an ascending 16-bit index per kept value; then the kept values.

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>
#include <string>

#include "gradwire/base/vectorized.h"
#include "gradwire/codec/block_codec.h"
#include "gradwire/codec/codecs.h"
#include "gradwire/codec/float16.h"
#include "gradwire/codec/packing.h"
#include "gradwire/codec/selection.h"

namespace gradwire::codec {
namespace {

constexpr std::size_t kBlock = 4096;

using Indexes = std::array<std::uint16_t, kBlock>;

GRADWIRE_VECTORIZED
void dense(const float* __restrict x, std::size_t n, PackedUint16* __restrict codes) {
  for (std::size_t i = 0; i < n; ++i) codes[i].value = to_bf16(x[i]);
}

GRADWIRE_VECTORIZED
void from_dense(const PackedUint16* __restrict codes, std::size_t n, float* __restrict y) {
  for (std::size_t i = 0; i < n; ++i) y[i] = from_bf16(codes[i].value);
}

/// Loads up to eight bytes as bits, the first byte lowest.
std::uint64_t load_bits(const std::byte* in, std::size_t bytes) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, in, bytes);
  if constexpr (std::endian::native == std::endian::big) bits = __builtin_bswap64(bits);
  return bits;
}

/// Representation of the places of the kept values.
enum class Places { all, bitmap, list };

Places places_of(std::size_t n, std::size_t kept) {
  if (kept == n) return Places::all;
  return packed_bytes(n, 8) <= 2 * kept ? Places::bitmap : Places::list;
}

std::size_t place_bytes(std::size_t n, std::size_t kept) {
  return kept == n ? 0 : std::min(packed_bytes(n, 8), 2 * kept);
}

void write_places(Places how, const Indexes& indexes, std::size_t n, std::size_t kept,
                  std::byte* out) {
  if (how == Places::list) {
    auto* const list = reinterpret_cast<PackedUint16*>(out);
    for (std::size_t j = 0; j < kept; ++j) list[j].value = indexes[j];
  } else {
    std::fill_n(out, packed_bytes(n, 8), std::byte{0});
    for (std::size_t j = 0; j < kept; ++j) out[indexes[j] / 8] |= std::byte{1} << indexes[j] % 8;
  }
}

/// Returns false if these are not `kept` ascending indexes below n.
bool read_list(const std::byte* in, std::size_t n, std::size_t kept, Indexes& indexes) {
  const auto* const list = reinterpret_cast<const PackedUint16*>(in);
  std::uint32_t next = 0;  // Minimum of the next index.
  bool right = true;
  for (std::size_t j = 0; j < kept; ++j) {
    right = right && list[j].value >= next && list[j].value < n;
    next = list[j].value + 1u;
    indexes[j] = list[j].value;
  }
  return right;
}

/// Returns false unless exactly `kept` bits are set, all among the first n.
bool read_bitmap(const std::byte* in, std::size_t n, std::size_t kept, Indexes& indexes) {
  std::uint16_t* end = indexes.data();
  const std::size_t bytes = packed_bytes(n, 8);
  std::size_t count = 0;
  for (std::size_t at = 0; at < bytes; at += 8) {
    const std::uint64_t bits = load_bits(in + at, std::min<std::size_t>(bytes - at, 8));
    count += static_cast<std::size_t>(std::popcount(bits));
    if (count > kept || (n - 8 * at < 64 && bits >> (n - 8 * at) != 0)) return false;
    end = append_indexes(bits, 8 * at, end);
  }
  return count == kept;
}

bool read_places(Places how, const std::byte* in, std::size_t n, std::size_t kept,
                 Indexes& indexes) {
  return how == Places::list ? read_list(in, n, kept, indexes) : read_bitmap(in, n, kept, indexes);
}

/// If a block has a value that is not finite, its first kept value is NaN, which stands for a block
/// of NaN.
bool is_nan(const PackedUint16* codes) {
  return std::isnan(from_bf16(codes[0].value));
}

class TopK final : public BlockCodec {
 public:
  /// Keeps `ranks` times the fraction.
  TopK(double fraction, int ranks) : fraction_(fraction), ranks_(ranks) {}
  std::string name() const override { return "top_k"; }
  bool wants_feedback() const override { return true; }
  std::unique_ptr<Codec> for_mean(int ranks) const override {
    return std::make_unique<TopK>(fraction_, ranks);
  }

 private:
  std::size_t kept(std::size_t n) const {
    const auto share = static_cast<std::size_t>(std::lround(fraction_ * static_cast<double>(n)));
    const std::size_t wanted = std::max<std::size_t>(1, share) * static_cast<std::size_t>(ranks_);
    if (wanted >= n) return n;
    return place_bytes(n, wanted) + 2 * wanted < 2 * n ? wanted : n;
  }

  std::size_t block_size() const override { return kBlock; }
  std::size_t block_bytes(std::size_t n) const override {
    return place_bytes(n, kept(n)) + 2 * kept(n);
  }

  void encode_block(const float* x, std::size_t n, std::uint64_t, std::byte* out) const override {
    const std::size_t count = kept(n);
    const Places places = places_of(n, count);
    auto* const codes = reinterpret_cast<PackedUint16*>(out + place_bytes(n, count));
    if (places == Places::all) return dense(x, n, codes);
    Indexes indexes;
    const bool finite = select_largest(x, n, count, indexes.data());
    if (!finite) std::iota(indexes.begin(), indexes.begin() + count, std::uint16_t{0});
    write_places(places, indexes, n, count, out);
    // If not finite, all of the block becomes NaN, as the offending value might not be kept.
    for (std::size_t j = 0; j < count; ++j) codes[j].value = to_bf16(finite ? x[indexes[j]] : kNan);
  }

  bool decode_block(const std::byte* in, std::size_t n, std::uint64_t, float* y) const override {
    if (is_dense(n)) {
      from_dense(codes_of(in, n), n, y);
      return true;
    }
    std::fill_n(y, n, is_nan(codes_of(in, n)) ? kNan : 0.0F);
    return for_each_kept(in, n, [y](std::size_t i, float value) { y[i] = value; });
  }

  bool add_block(const std::byte* in, std::size_t n, std::uint64_t seed, float* y) const override {
    if (is_dense(n)) return BlockCodec::add_block(in, n, seed, y);
    if (!for_each_kept(in, n, [y](std::size_t i, float value) { y[i] += value; })) return false;
    if (is_nan(codes_of(in, n))) std::fill_n(y, n, kNan);
    return true;
  }

  void subtract_block(const std::byte* in, std::size_t n, std::uint64_t seed,
                      float* x) const override {
    if (is_dense(n)) return BlockCodec::subtract_block(in, n, seed, x);
    if (is_nan(codes_of(in, n))) return void(std::fill_n(x, n, 0.0F));
    for_each_kept(in, n, [x](std::size_t i, float value) { x[i] -= value; });
  }

  bool is_dense(std::size_t n) const { return kept(n) == n; }

  const PackedUint16* codes_of(const std::byte* block, std::size_t n) const {
    return reinterpret_cast<const PackedUint16*>(block + place_bytes(n, kept(n)));
  }

  /// Calls visit(index, value) for all kept values of a block. Returns false, without any call, if
  /// the block is damaged.
  template <class Visit>
  bool for_each_kept(const std::byte* in, std::size_t n, Visit visit) const {
    const std::size_t count = kept(n);
    Indexes indexes;
    if (!read_places(places_of(n, count), in, n, count, indexes)) return false;
    const PackedUint16* const codes = codes_of(in, n);
    for (std::size_t j = 0; j < count; ++j) visit(indexes[j], from_bf16(codes[j].value));
    return true;
  }

  double fraction_;
  int ranks_;
};

}  // namespace

std::unique_ptr<Codec> top_k_codec(double fraction) {
  return std::make_unique<TopK>(fraction, 1);
}

}  // namespace gradwire::codec
