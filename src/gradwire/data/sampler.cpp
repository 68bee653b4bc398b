#include "gradwire/data/sampler.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "gradwire/base/check.h"
#include "gradwire/base/random.h"
#include "gradwire/base/refuse.h"
#include "gradwire/base/shuffle.h"

namespace gradwire {
namespace {

void require(bool condition, const std::string& message) {
  if (!condition) refuse("sampler: " + message);
}

void check(const SamplerOptions& options) {
  require(options.samples > 0, "the data set is empty");
  require(options.batch_size > 0,
          fmt::format("the batch size must be positive, not {}", options.batch_size));
  require(options.world_size > 0 && options.rank >= 0 && options.rank < options.world_size,
          fmt::format("rank {} is not one of {} ranks", options.rank, options.world_size));
}

/// Returns a separate random stream for each pair of seed and epoch.
Random random_for(std::uint64_t seed, std::int64_t epoch) {
  return Random(Random(seed).next() + static_cast<std::uint64_t>(epoch));
}

}  // namespace

Sampler::Sampler(const SamplerOptions& options) : options_(options) {
  check(options_);
  const auto global = options_.batch_size * options_.world_size;
  const bool drop = options_.uneven == UnevenBatch::drop;
  batches_ = drop ? options_.samples / global : (options_.samples + global - 1) / global;
  require(batches_ > 0,
          fmt::format("{} samples are less than one batch of {} on each of {} ranks; use a smaller "
                      "batch, or pad",
                      options_.samples, options_.batch_size, options_.world_size));
  order_.resize(static_cast<std::size_t>(options_.samples));
  start_epoch(0);
}

void Sampler::start_epoch(std::int64_t epoch) {
  std::iota(order_.begin(), order_.end(), 0);
  if (!options_.shuffle) return;
  Random random = random_for(options_.seed, epoch);
  shuffle(order_, random);
}

SampledBatch Sampler::batch(std::int64_t step) const {
  GRADWIRE_CHECK(step >= 0 && step < batches_);
  const auto first = (step * options_.world_size + options_.rank) * options_.batch_size;
  SampledBatch batch;
  for (std::int64_t i = first; i < first + options_.batch_size; ++i) {
    batch.samples.push_back(order_[static_cast<std::size_t>(i % options_.samples)]);
  }
  batch.own = std::clamp<std::int64_t>(options_.samples - first, 0, options_.batch_size);
  return batch;
}

SampledBatch Sampler::at(std::int64_t begin, std::int64_t count) const {
  GRADWIRE_CHECK(begin >= 0 && count >= 0 && begin + count <= options_.samples);
  return {.samples = {order_.begin() + begin, order_.begin() + begin + count}, .own = count};
}

}  // namespace gradwire
