#include "gradwire/servers/sample_dealer.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "gradwire/base/error.h"
#include "gradwire/base/refuse.h"

namespace gradwire::servers {

std::int64_t DealProgress::applied() const {
  std::int64_t applied = dealt;
  for (const Deal& batch : unapplied) applied -= batch.count;
  return applied;
}

std::vector<std::int64_t> encode(const DealProgress& progress) {
  std::vector<std::int64_t> integers{progress.dealt};
  for (const Deal& batch : progress.unapplied) {
    integers.insert(integers.end(), {batch.epoch, batch.begin, batch.count});
  }
  return integers;
}

DealProgress decode_progress(const std::vector<std::int64_t>& integers) {
  if (integers.size() % 3 != 1) {
    throw Exception(ErrorKind::corrupted, "the progress of a run in its samples is damaged");
  }
  DealProgress progress{.dealt = integers[0], .unapplied = {}};
  for (std::size_t i = 1; i < integers.size(); i += 3) {
    progress.unapplied.push_back(
        {.epoch = integers[i], .begin = integers[i + 1], .count = integers[i + 2]});
  }
  return progress;
}

DealShare share_of(const Deal& batch, int member, int members) {
  DealShare share{.batch = batch};
  const std::int64_t samples = batch.count;
  if (samples == 0) return share;
  const auto mean_share = static_cast<double>(samples) / members;
  if (samples >= members) {
    const std::int64_t begin = samples * member / members;
    share.batch.begin += begin;
    share.batch.count = samples * (member + 1) / members - begin;
    share.weight = static_cast<double>(share.batch.count) / mean_share;
  } else {
    const std::int64_t sample = member % samples;
    const std::int64_t alike = (members - sample + samples - 1) / samples;
    share.batch.begin += sample;
    share.batch.count = 1;
    share.weight = 1 / (mean_share * static_cast<double>(alike));
  }
  return share;
}

SampleDealer::SampleDealer(std::int64_t samples, std::int64_t epochs, int workers,
                           const DealProgress& progress)
    : samples_(samples),
      epochs_(epochs),
      returned_(progress.unapplied.begin(), progress.unapplied.end()),
      has_(static_cast<std::size_t>(workers)),
      taken_(static_cast<std::size_t>(workers)),
      applied_(progress.applied()) {
  if (samples < 1 || epochs < 1 || samples > INT64_MAX / epochs) {
    refuse("there are {} samples to deal in {} epochs; there must be at least 1", samples, epochs);
  }
  if (progress.dealt < 0 || progress.dealt > samples * epochs || applied_ < 0) {
    refuse("{} of {} samples cannot have been dealt, and {} applied", progress.dealt,
           samples * epochs, applied_);
  }
  for (const Deal& batch : returned_) {
    const bool fits = batch.epoch >= 0 && batch.epoch < epochs && batch.begin >= 0 &&
                      batch.count > 0 && batch.begin <= samples - batch.count;
    if (!fits) {
      refuse("there are no samples {} to {} in epoch {}", batch.begin, batch.begin + batch.count,
             batch.epoch);
    }
  }
  fresh_ = {.epoch = progress.dealt / samples, .begin = progress.dealt % samples};
  fresh_.count = fresh_.epoch < epochs ? samples - fresh_.begin : 0;
}

DealProgress SampleDealer::progress() const {
  DealProgress progress{.dealt = fresh_.epoch * samples_ + fresh_.begin, .unapplied = {}};
  progress.unapplied.assign(returned_.begin(), returned_.end());
  for (const std::deque<Deal>& has : has_) {
    progress.unapplied.insert(progress.unapplied.end(), has.begin(), has.end());
  }
  return progress;
}

Deal SampleDealer::on_take(Rank rank, std::int64_t count) {
  if (count < 1) {
    throw Exception(ErrorKind::corrupted,
                    fmt::format("worker {} asks for {} samples", rank, count));
  }
  Deal dealt{.applied = applied_};
  if (returned_.empty() && fresh_.count == 0) return dealt;
  dealt = next(count);
  dealt.applied = applied_;
  batches_of(rank).push_back(dealt);
  std::int64_t& taken = taken_[static_cast<std::size_t>(rank)];
  dealt.taken = taken += dealt.count;
  dealt.most = std::ranges::max(taken_);
  return dealt;
}

std::vector<Deal> SampleDealer::on_push(Rank rank, std::int64_t batches) {
  std::deque<Deal>& has = batches_of(rank);
  if (batches < 0 || batches > static_cast<std::int64_t>(has.size())) {
    throw Exception(ErrorKind::corrupted, fmt::format("worker {} pushes a gradient of {} batches, "
                                                      "and has {}",
                                                      rank, batches, has.size()));
  }
  std::vector<Deal> pushed(has.begin(), has.begin() + batches);
  has.erase(has.begin(), has.begin() + batches);
  return pushed;
}

void SampleDealer::on_applied(const std::vector<Deal>& batches) {
  for (const Deal& batch : batches) applied_ += batch.count;
}

void SampleDealer::on_dropped(const std::vector<Deal>& batches) {
  returned_.insert(returned_.end(), batches.begin(), batches.end());
}

void SampleDealer::on_gone(Rank rank) {
  const std::deque<Deal> has = std::exchange(batches_of(rank), {});
  returned_.insert(returned_.end(), has.begin(), has.end());
}

Deal SampleDealer::next(std::int64_t count) {
  const bool again = !returned_.empty();
  Deal& source = again ? returned_.front() : fresh_;
  Deal dealt = source;
  dealt.count = std::min(dealt.count, count);
  source.begin += dealt.count;
  source.count -= dealt.count;
  if (again && source.count == 0) returned_.pop_front();
  if (!again && source.count == 0 && source.epoch + 1 < epochs_) {
    fresh_ = {.epoch = fresh_.epoch + 1, .begin = 0, .count = samples_};
  }
  return dealt;
}

}  // namespace gradwire::servers
