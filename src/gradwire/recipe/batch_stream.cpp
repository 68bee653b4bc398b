#include "gradwire/recipe/batch_stream.h"

#include <algorithm>
#include <memory>

#include "gradwire/data/text.h"

namespace gradwire::recipe {

DataSet load_data(const DataConfig& config, Split split) {
  auto data = config.name == "text" ? make_data_set(load_text(split, config.context, config.path))
                                    : make_data_set(load_fashion_mnist(split, config.path));
  // Samplers use the first `size` samples.
  if (split == Split::train && config.limit > 0) data.size = std::min(data.size, config.limit);
  return data;
}

namespace {

std::function<std::optional<Batch>()> maker(const DataSet& data, Sampler sampler,
                                            std::int64_t epoch, std::int64_t first) {
  sampler.start_epoch(epoch);
  return [batch = data.batch, sampler = std::move(sampler), step = first]() mutable {
    return step < sampler.batches() ? std::optional(batch(sampler.batch(step++))) : std::nullopt;
  };
}

}  // namespace

BatchStream::BatchStream(const DataSet& data, Sampler sampler, std::int64_t epoch,
                         std::size_t ahead, std::int64_t first)
    : batches_(maker(data, std::move(sampler), epoch, first), ahead) {}

}  // namespace gradwire::recipe
