#include "gradwire/recipe/batch_stream.h"

#include <memory>

namespace gradwire {
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

}  // namespace gradwire
