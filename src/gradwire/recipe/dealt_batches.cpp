#include "gradwire/recipe/dealt_batches.h"

#include <utility>

namespace gradwire::recipe {

DealtBatches::DealtBatches(ServedModule& served, const DataSet& data, Sampler sampler,
                           std::int64_t epochs, const servers::DealProgress& progress)
    : served_(served),
      data_(data),
      sampler_(std::move(sampler)),
      total_(epochs * data.size),
      resumed_(progress.applied()),
      applied_(resumed_) {
  served_.deal(data.size, epochs, progress);
}

std::optional<Batch> DealtBatches::next(int signal) {
  const servers::Deal dealt = served_.take(sampler_.options().batch_size, signal);
  applied_ = dealt.applied;
  first_ = static_cast<Rank>(dealt.first);
  stop_ = static_cast<int>(dealt.stop);
  ended_ = dealt.count == 0 && applied_ == total_;
  if (dealt.count == 0) return std::nullopt;
  share_ = static_cast<double>(dealt.taken) / static_cast<double>(dealt.most);
  if (dealt.epoch != epoch_) sampler_.start_epoch(epoch_ = dealt.epoch);
  return data_.batch(sampler_.at(dealt.begin, dealt.count));
}

void DealtBatches::meet() {
  const servers::Meeting met = served_.meet();
  applied_ = met.applied;
  first_ = static_cast<Rank>(met.first);
}

}  // namespace gradwire::recipe
