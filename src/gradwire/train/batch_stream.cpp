#include "gradwire/train/batch_stream.h"

#include <memory>

namespace gradwire {
namespace {

std::function<std::optional<Batch>()> maker(const ImageData& data, Sampler sampler,
                                            std::int64_t epoch) {
  sampler.start_epoch(epoch);
  return [&data, sampler = std::move(sampler), step = std::int64_t{0}]() mutable {
    return step < sampler.batches() ? std::optional(data.batch(sampler.batch(step++)))
                                    : std::nullopt;
  };
}

}  // namespace

BatchStream::BatchStream(const ImageData& data, Sampler sampler, std::int64_t epoch,
                         std::size_t ahead)
    : batches_(maker(data, std::move(sampler), epoch), ahead) {}

}  // namespace gradwire
