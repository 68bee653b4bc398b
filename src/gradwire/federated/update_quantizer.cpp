#include "gradwire/federated/update_quantizer.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "gradwire/base/check.h"
#include "gradwire/base/random.h"
#include "gradwire/base/refuse.h"
#include "gradwire/codec/hadamard.h"

namespace gradwire::federated {
namespace {

constexpr std::size_t kBlock = codec::kMaxTransform;
constexpr std::size_t kSmallestBlock = 32;  ///< scale_and_flip() rounds up to it.

/// Elements of the block at `begin` of `size` elements, which is padded to a power of two.
std::size_t block_at(std::size_t begin, std::size_t size) {
  return std::clamp(std::bit_ceil(size - begin), kSmallestBlock, kBlock);
}

/// Elements of all blocks.
std::size_t padded(std::size_t size) {
  const std::size_t whole = size / kBlock * kBlock;
  return whole == size ? size : whole + block_at(whole, size);
}

std::uint64_t block_seed(std::uint64_t seed, std::size_t begin) {
  return mixed_seed({seed, begin / kBlock});
}

/// x[i] for the mask's i-th element, or the i-th if there is no mask.
std::size_t position(const std::vector<std::uint32_t>& kept, std::size_t i) {
  return kept.empty() ? i : kept[i];
}

}  // namespace

void check(const QuantizerOptions& options) {
  if (options.bits < 2 || options.bits > 32)
    refuse("an update has 2 to 32 bits an element, not {}", options.bits);
  if (!(options.keep > 0 && options.keep <= 1))
    refuse("the mask of an update keeps a share above 0 and up to 1 of its elements, not {}",
           options.keep);
  if (!(options.clip >= 0 && std::isfinite(options.clip)))
    refuse("the largest magnitude of an update's element is at least 0, not {}", options.clip);
}

UpdateQuantizer::UpdateQuantizer(const QuantizerOptions& options, std::size_t size, double range,
                                 std::uint64_t round_seed)
    : options_(options),
      size_(size),
      range_(range),
      unit_(range / static_cast<double>((std::int64_t{1} << (options.bits - 1)) - 1)),
      seed_(round_seed) {
  check(options);
  GRADWIRE_CHECK(range > 0 && size < std::numeric_limits<std::uint32_t>::max());
  if (options.keep == 1) return;
  Random random(mixed_seed({seed_, 1}));
  const std::size_t all = options.rotate ? padded(size) : size;
  for (std::size_t i = 0; i < all; ++i)
    if (random.unit() < options.keep) kept_.push_back(static_cast<std::uint32_t>(i));
  if (kept_.empty()) kept_.push_back(0);
}

std::size_t UpdateQuantizer::elements() const {
  if (!kept_.empty()) return kept_.size();
  return options_.rotate ? padded(size_) : size_;
}

std::vector<float> UpdateQuantizer::rotated(std::span<const float> update) const {
  std::vector<float> result(padded(size_));
  alignas(64) float block[kBlock];
  for (std::size_t begin = 0; begin < size_; begin += kBlock) {
    const std::size_t n = block_at(begin, size_), used = std::min(n, size_ - begin);
    std::fill_n(std::ranges::copy(update.subspan(begin, used), block).out, n - used, 0.0F);
    const float factor = 1 / std::sqrt(static_cast<float>(n));
    codec::scale_and_flip(block, n, factor, block_seed(seed_, begin), block);
    codec::hadamard_transform(block, n);
    std::copy_n(block, n, result.begin() + static_cast<std::ptrdiff_t>(begin));
  }
  return result;
}

UpdateQuantizer::Encoded UpdateQuantizer::encode(std::span<const float> update, std::int64_t weight,
                                                 int sum_bits, std::uint64_t client_seed) const {
  GRADWIRE_CHECK(update.size() == size_);
  const std::vector<float> turned = options_.rotate ? rotated(update) : std::vector<float>();
  const float* const values = options_.rotate ? turned.data() : update.data();
  Encoded encoded{.integers = ModularVector(elements(), sum_bits)};
  Random random(client_seed);
  const double last = std::round(range_ / unit_);  // The number of levels above 0.
  double square = 0;
  encoded.integers.visit([&](auto words) {
    using Word = typename decltype(words)::value_type;
    for (std::size_t i = 0; i < words.size(); ++i) {
      const double value = values[position(kept_, i)];
      square += value * value;
      const double level = std::floor(value / unit_ + random.unit());
      const double within = std::clamp(level, -last, last);
      encoded.clipped += std::abs(value) > range_;
      words[i] = static_cast<Word>(static_cast<std::int64_t>(within) * weight);
    }
  });
  encoded.mean_square = square / static_cast<double>(std::max<std::size_t>(elements(), 1));
  return encoded;
}

std::vector<float> UpdateQuantizer::mean(const ModularVector& sum, std::int64_t weight) const {
  GRADWIRE_CHECK(sum.size() == elements() && weight > 0);
  const std::size_t all = options_.rotate ? padded(size_) : size_;
  std::vector<float> result(all);
  const double factor = unit_ / (static_cast<double>(weight) * (kept_.empty() ? 1 : options_.keep));
  for (std::size_t i = 0; i < sum.size(); ++i)
    result[position(kept_, i)] = static_cast<float>(static_cast<double>(sum.signed_at(i)) * factor);
  if (!options_.rotate) return result;
  alignas(64) float block[kBlock];
  for (std::size_t begin = 0; begin < size_; begin += kBlock) {
    const std::size_t n = block_at(begin, size_);
    std::copy_n(result.begin() + static_cast<std::ptrdiff_t>(begin), n, block);
    codec::hadamard_transform(block, n);
    const float scale = 1 / std::sqrt(static_cast<float>(n));
    codec::scale_and_flip(block, n, scale, block_seed(seed_, begin), block);
    std::copy_n(block, n, result.begin() + static_cast<std::ptrdiff_t>(begin));
  }
  result.resize(size_);
  return result;
}

double next_range(const QuantizerOptions& options, double mean_square) {
  if (options.clip > 0) return options.clip;
  const double deviation = std::sqrt(std::max(mean_square, 1e-24));
  return (options.rotate ? 5 : 20) * deviation;
}

QuantizerOptions first_round(QuantizerOptions options) {
  if (options.clip == 0) options.bits = std::max(options.bits, 16);
  return options;
}

}  // namespace gradwire::federated
