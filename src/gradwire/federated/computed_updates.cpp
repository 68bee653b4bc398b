#include "gradwire/federated/computed_updates.h"

#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "gradwire/base/check.h"
#include "gradwire/base/random.h"

namespace gradwire::federated {

Result<Contribution> encode(const LocalResult& result, const LocalWork& work,
                            const Order::Upload& upload, const UpdateRules& rules) {
  std::size_t not_finite = 0;
  for (const float value : result.update) not_finite += !std::isfinite(value);
  if (not_finite > 0) {
    return failure(ErrorKind::invalid_argument,
                   fmt::format("the update of client {} in round {} is not finite: lower the "
                               "learning rate of local training",
                               work.client, work.round));
  }
  std::vector<float> by_step;
  std::span<const float> update = result.update;
  if (rules.normalizes && result.steps > 0) {
    for (const float value : update) by_step.push_back(value / static_cast<float>(result.steps));
    update = by_step;
  }
  const std::uint64_t seed = mixed_seed({rules.seed, static_cast<std::uint64_t>(work.round),
                                         static_cast<std::uint64_t>(work.client)});
  UpdateQuantizer::Encoded encoded =
      rules.quantizer->encode(update, upload.weight, upload.bits, seed);
  const double range = rules.quantizer->range();
  const Metrics metrics{
      .clients = 1,
      .steps = result.steps,
      .weighted_steps = static_cast<double>(result.steps) * static_cast<double>(upload.weight),
      .clipped = encoded.clipped,
      .mean_square = encoded.mean_square / (range * range),
      .evaluated = result.evaluated,
      .correct = result.correct,
      .loss = result.loss,
      .training_loss = result.training_loss};
  return Contribution{std::move(encoded.integers), to_integers(metrics)};
}

ComputedUpdates::ComputedUpdates(std::vector<std::unique_ptr<ClientTrainer>> trainers)
    : trainers_(std::move(trainers)) {
  GRADWIRE_CHECK(!trainers_.empty());
  if (trainers_.size() == 1) return;
  for (const auto& trainer : trainers_)
    threads_.emplace_back([this, one = trainer.get()] { run(*one); });
}

ComputedUpdates::~ComputedUpdates() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ComputedUpdates::set_round(std::int64_t round, std::span<const float> model,
                                const UpdateRules& rules) {
  std::unique_lock lock(mutex_);
  stop_computing(lock);
  round_ = round;
  model_ = model;
  rules_ = rules;
}

void ComputedUpdates::begin(std::span<const AwaitedUpdate> awaited) {
  {
    std::unique_lock lock(mutex_);
    stop_computing(lock);
    for (const AwaitedUpdate& one : awaited) slots_.push_back({.awaited = one});
  }
  changed_.notify_all();
}

/// A round that was abandoned leaves updates that nobody has asked for.
void ComputedUpdates::stop_computing(std::unique_lock<std::mutex>& lock) {
  started_ = slots_.size();
  changed_.wait(lock, [&] { return computing_ == 0; });
  slots_.clear();
  started_ = given_ = 0;
}

Contribution ComputedUpdates::next() {
  std::unique_lock lock(mutex_);
  GRADWIRE_CHECK(given_ < slots_.size());
  Slot& slot = slots_[given_++];
  if (threads_.empty())
    compute(*trainers_.front(), slot);
  else
    changed_.notify_all();
  changed_.wait(lock, [&] { return threads_.empty() || slot.is_done; });
  if (const std::exception_ptr failure = slot.failure) {
    stop_computing(lock);  // The caller may end the quantizer.
    std::rethrow_exception(failure);
  }
  return *std::exchange(slot.contribution, std::nullopt);
}

bool ComputedUpdates::may_start() const {
  return started_ < slots_.size() && started_ < given_ + 2 * trainers_.size();
}

void ComputedUpdates::run(ClientTrainer& trainer) {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return ends_ || may_start(); });
    if (ends_) return;
    Slot& slot = slots_[started_++];
    ++computing_;
    lock.unlock();
    compute(trainer, slot);
    lock.lock();
    --computing_;
    slot.is_done = true;
    changed_.notify_all();
  }
}

void ComputedUpdates::compute(ClientTrainer& trainer, Slot& slot) const {
  try {
    const LocalWork work{slot.awaited.client, round_, slot.awaited.epochs, model_, rules_.proximal};
    slot.contribution =
        value_or_throw(encode(trainer.train(work), work, slot.awaited.upload, rules_));
  } catch (...) {
    slot.failure = std::current_exception();
  }
}

}  // namespace gradwire::federated
