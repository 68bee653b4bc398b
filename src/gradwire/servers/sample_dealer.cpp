#include "gradwire/servers/sample_dealer.h"

#include <algorithm>

#include <fmt/format.h>

#include "gradwire/base/error.h"
#include "gradwire/base/refuse.h"

namespace gradwire::servers {

SampleDealer::SampleDealer(std::int64_t samples, std::int64_t epochs, int workers)
    : samples_(samples),
      epochs_(epochs),
      fresh_{.epoch = 0, .begin = 0, .count = epochs > 0 ? samples : 0},
      workers_(static_cast<std::size_t>(workers)) {
  if (samples < 1) refuse("there are {} samples to deal; there must be at least 1", samples);
}

void SampleDealer::on_take(Rank rank, std::int64_t count) {
  if (count < 1 || worker(rank).wanted > 0) {
    throw Exception(ErrorKind::corrupted,
                    fmt::format("worker {} asks for {} samples, and waits for {}", rank, count,
                                worker(rank).wanted));
  }
  worker(rank).wanted = count;
}

std::vector<Deal> SampleDealer::on_push(Rank rank, std::int64_t batches) {
  std::deque<Deal>& has = worker(rank).has;
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
  Worker gone = std::exchange(worker(rank), {});
  returned_.insert(returned_.end(), gone.has.begin(), gone.has.end());
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

std::vector<std::pair<Rank, Deal>> SampleDealer::take_answers() {
  std::vector<std::pair<Rank, Deal>> answers;
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    Worker& asking = workers_[i];
    if (asking.wanted == 0) continue;
    Deal dealt;
    if (!returned_.empty() || fresh_.count > 0) {
      dealt = next(asking.wanted);
      asking.has.push_back(dealt);
    } else if (asking.has.empty() && others_have_some()) {
      continue;  // They may be lost.
    }
    asking.wanted = 0;
    dealt.applied = applied_;
    answers.emplace_back(static_cast<Rank>(i), dealt);
  }
  return answers;
}

bool SampleDealer::others_have_some() const {
  return std::ranges::any_of(workers_, [](const Worker& each) { return !each.has.empty(); });
}

}  // namespace gradwire::servers
