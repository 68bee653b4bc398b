#include "gradwire/recipe/batch_stream.h"

#include <algorithm>
#include <memory>

#include "gradwire/data/click_through.h"
#include "gradwire/data/text.h"

namespace gradwire::recipe {

namespace {

DataSet load_whole(const DataConfig& config, Split split) {
  if (config.name == "click_through") return make_data_set(make_clicks(split, config.clicks));
  if (config.name == "text") return make_data_set(load_text(split, config.context, config.path));
  return make_data_set(load_fashion_mnist(split, config.path));
}

}  // namespace

DataSet load_data(const DataConfig& config, Split split) {
  auto data = load_whole(config, split);
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
