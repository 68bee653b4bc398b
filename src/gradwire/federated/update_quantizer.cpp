#include "gradwire/federated/update_quantizer.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "gradwire/base/check.h"
#include "gradwire/base/random.h"
#include "gradwire/base/refuse.h"
#include "gradwire/base/vectorized.h"
#include "gradwire/codec/hadamard.h"

namespace gradwire::federated {
namespace {

constexpr std::size_t kSmallestBlock = 32;  ///< scale_and_flip() rounds up to it.

/// Blocks of equal size, a power of two. Block b has the elements b, b + count, b + 2 count, ...,
/// and zeros after these, so that each has some of every tensor, and all have about the same norm.
struct Blocks {
  explicit Blocks(std::size_t elements)
      : size(std::clamp(std::bit_ceil(std::max<std::size_t>(elements, 1)), kSmallestBlock,
                        codec::kMaxTransform)),
        count((elements + size - 1) / size) {}
  std::size_t padded() const { return size * count; }
  /// Elements of block b that are not padding.
  std::size_t used(std::size_t b, std::size_t elements) const {
    return (elements - b + count - 1) / count;
  }

  std::size_t size, count;
};

std::uint64_t block_seed(std::uint64_t seed, std::size_t b) {
  return mixed_seed({seed, b});
}

/// The transform is orthogonal.
float scale_of(const Blocks& blocks) {
  return 1 / std::sqrt(static_cast<float>(blocks.size));
}

/// Elements that are rounded together.
constexpr std::size_t kTile = 512;

/// A part of an update on its way to integers.
struct Tile {
  std::size_t size = 0;
  double values[kTile];
  std::int32_t levels[kTile];
};

/// Rounds to levels at distance `unit`, from -last to last, up or down at random. Element i has a
/// generator of its own, Random(seed + i), so that the loop can be vectorized. 31 bits of its draw
/// are enough: the bias is below 2^-31 of a level.
GRADWIRE_VECTORIZED
void round_at_random(Tile& tile, double unit, double last, std::uint64_t seed) {
  for (std::size_t i = 0; i < tile.size; ++i) {
    const auto draw = static_cast<std::int32_t>(Random(seed + i).next() >> 33);
    const double level = std::floor(tile.values[i] / unit + draw * 0x1.0p-31);
    tile.levels[i] = static_cast<std::int32_t>(std::min(std::max(level, -last), last));
  }
}

/// Sums in eight lanes, in the same order on every processor.
GRADWIRE_VECTORIZED
double sum_of_squares(const Tile& tile) {
  constexpr std::size_t kLanes = 8;
  static_assert(kTile % kLanes == 0);
  double sums[kLanes] = {};
  const std::size_t whole = tile.size / kLanes * kLanes;
  for (std::size_t i = 0; i < whole; i += kLanes) {
    for (std::size_t k = 0; k < kLanes; ++k) sums[k] += tile.values[i + k] * tile.values[i + k];
  }
  double sum = 0;
  for (const double lane : sums) sum += lane;
  for (std::size_t i = whole; i < tile.size; ++i) sum += tile.values[i] * tile.values[i];
  return sum;
}

GRADWIRE_VECTORIZED
std::int64_t beyond(const Tile& tile, double range) {
  std::int64_t count = 0;
  for (std::size_t i = 0; i < tile.size; ++i) count += std::abs(tile.values[i]) > range;
  return count;
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
  const std::size_t all = options.rotate ? Blocks(size).padded() : size;
  for (std::size_t i = 0; i < all; ++i)
    if (random.unit() < options.keep) kept_.push_back(static_cast<std::uint32_t>(i));
  if (kept_.empty()) kept_.push_back(0);
}

std::size_t UpdateQuantizer::elements() const {
  if (!kept_.empty()) return kept_.size();
  return options_.rotate ? Blocks(size_).padded() : size_;
}

std::vector<float> UpdateQuantizer::rotated(std::span<const float> update) const {
  const Blocks blocks(size_);
  std::vector<float> result(blocks.padded());
  alignas(64) float block[codec::kMaxTransform];
  for (std::size_t b = 0; b < blocks.count; ++b) {
    const std::size_t used = blocks.used(b, size_);
    for (std::size_t i = 0; i < used; ++i) block[i] = update[b + i * blocks.count];
    std::fill(block + used, block + blocks.size, 0.0F);
    codec::scale_and_flip(block, blocks.size, scale_of(blocks), block_seed(seed_, b), block);
    codec::hadamard_transform(block, blocks.size);
    std::copy_n(block, blocks.size, result.data() + b * blocks.size);
  }
  return result;
}

void UpdateQuantizer::rotate_back(std::span<const float> rotated, std::span<float> update) const {
  const Blocks blocks(size_);
  alignas(64) float block[codec::kMaxTransform];
  for (std::size_t b = 0; b < blocks.count; ++b) {
    std::copy_n(rotated.data() + b * blocks.size, blocks.size, block);
    codec::hadamard_transform(block, blocks.size);
    codec::scale_and_flip(block, blocks.size, scale_of(blocks), block_seed(seed_, b), block);
    const std::size_t used = blocks.used(b, size_);
    for (std::size_t i = 0; i < used; ++i) update[b + i * blocks.count] = block[i];
  }
}

UpdateQuantizer::Encoded UpdateQuantizer::encode(std::span<const float> update, std::int64_t weight,
                                                 int sum_bits, std::uint64_t client_seed) const {
  GRADWIRE_CHECK(update.size() == size_);
  const std::vector<float> turned = options_.rotate ? rotated(update) : std::vector<float>();
  const float* const values = options_.rotate ? turned.data() : update.data();
  Encoded encoded{.integers = ModularVector(elements(), sum_bits)};
  const double last = std::round(range_ / unit_);  // The number of levels above 0.
  double square = 0;
  Tile tile;
  for (std::size_t begin = 0; begin < elements(); begin += tile.size) {
    tile.size = std::min(kTile, elements() - begin);
    for (std::size_t i = 0; i < tile.size; ++i) tile.values[i] = values[position(kept_, begin + i)];
    square += sum_of_squares(tile);
    encoded.clipped += beyond(tile, range_);
    round_at_random(tile, unit_, last, client_seed + begin);
    encoded.integers.visit([&](auto words) {
      using Word = typename decltype(words)::value_type;
      for (std::size_t i = 0; i < tile.size; ++i)
        words[begin + i] = static_cast<Word>(std::int64_t{tile.levels[i]} * weight);
    });
  }
  encoded.mean_square = square / static_cast<double>(std::max<std::size_t>(elements(), 1));
  return encoded;
}

std::vector<float> UpdateQuantizer::mean(const ModularVector& sum, std::int64_t weight) const {
  GRADWIRE_CHECK(sum.size() == elements() && weight > 0);
  const std::size_t all = options_.rotate ? Blocks(size_).padded() : size_;
  std::vector<float> result(all);
  const double factor = unit_ / (static_cast<double>(weight) * (kept_.empty() ? 1 : options_.keep));
  for (std::size_t i = 0; i < sum.size(); ++i)
    result[position(kept_, i)] = static_cast<float>(static_cast<double>(sum.signed_at(i)) * factor);
  if (!options_.rotate) return result;
  std::vector<float> update(size_);
  rotate_back(result, update);
  return update;
}

double next_range(const QuantizerOptions& options, double mean_square) {
  if (options.clip > 0) return options.clip;
  const double deviation = std::sqrt(std::max(mean_square, 1e-24));
  return (options.rotate ? 5 : 20) * deviation;
}

QuantizerOptions first_round(QuantizerOptions options) {
  if (options.clip == 0) options.bits = std::max(options.bits, 24);
  return options;
}

}  // namespace gradwire::federated
