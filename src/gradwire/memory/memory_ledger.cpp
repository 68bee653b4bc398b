#include "gradwire/memory/memory_ledger.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>

namespace gradwire {
namespace {

// Maximum error of a sample's total: 1 / kFraction of the peak.
constexpr std::int64_t kFraction = 64;
constexpr std::int64_t kMinChange = 1 << 12;  // Bytes; minimum change for a sample.

std::size_t index_of(MemoryCategory category) {
  return static_cast<std::size_t>(category);
}

}  // namespace

MemoryLedger::MemoryLedger(const Clock& clock, std::size_t samples)
    : clock_(&clock), max_samples_(std::max<std::size_t>(samples, 2)), begin_(clock.now()) {
  samples_.reserve(max_samples_);
}

void MemoryLedger::add(MemoryBlock& block, std::int64_t bytes, MemoryCategory category,
                       std::uint32_t scope) {
  const std::lock_guard lock(mutex_);
  block = {.bytes = bytes,
           .serial = serial_++,
           .older = newest_,
           .newer = nullptr,
           .scope = scope,
           .category = category};
  if (newest_ != nullptr) newest_->newer = &block;
  newest_ = &block;
  bytes_[index_of(category)] += bytes;
  total_ += bytes;
  changed(category);
}

void MemoryLedger::remove(MemoryBlock& block) {
  const std::lock_guard lock(mutex_);
  if (block.older != nullptr) block.older->newer = block.newer;
  (block.newer != nullptr ? block.newer->older : newest_) = block.older;
  bytes_[index_of(block.category)] -= block.bytes;
  total_ -= block.bytes;
  changed(block.category);
}

void MemoryLedger::relabel(MemoryBlock& block, MemoryCategory category) {
  const std::lock_guard lock(mutex_);
  bytes_[index_of(block.category)] -= block.bytes;
  bytes_[index_of(category)] += block.bytes;
  block.category = category;
  changed(category);
}

std::uint64_t MemoryLedger::next_serial() const {
  const std::lock_guard lock(mutex_);
  return serial_;
}

void MemoryLedger::relabel_scope(std::uint32_t scope, std::uint64_t from, MemoryCategory category) {
  const std::lock_guard lock(mutex_);
  for (auto* block = newest_; block != nullptr && block->serial >= from; block = block->older) {
    if (block->scope != scope) continue;
    bytes_[index_of(block->category)] -= block->bytes;
    bytes_[index_of(category)] += block->bytes;
    block->category = category;
    changed(category);
  }
}

void MemoryLedger::sample(std::int64_t step) {
  const std::lock_guard lock(mutex_);
  step_ = step;
  if (clock_ != nullptr) keep(now_locked());
}

void MemoryLedger::stop_sampling() {
  const std::lock_guard lock(mutex_);
  clock_ = nullptr;
}

MemoryBytes MemoryLedger::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

report::MemoryPeak MemoryLedger::peak() const {
  const std::lock_guard lock(mutex_);
  return {.bytes = peak_total_, .at_peak = peak_.bytes, .max = max_of_each_};
}

MemoryTimeline MemoryLedger::timeline() const {
  const std::lock_guard lock(mutex_);
  MemoryTimeline timeline{.samples = samples_, .peak_bytes = peak_total_};
  const auto place =
      std::ranges::lower_bound(timeline.samples, peak_.seconds, {}, &MemorySample::seconds);
  if (peak_total_ > 0) timeline.samples.insert(place, peak_);
  return timeline;
}

MemorySample MemoryLedger::now_locked() const {
  const auto since = std::chrono::duration<double>(clock_->now() - begin_);
  return {.seconds = since.count(), .step = step_, .bytes = bytes_};
}

void MemoryLedger::changed(MemoryCategory category) {
  if (clock_ == nullptr) return;
  auto& max = max_of_each_[index_of(category)];
  max = std::max(max, bytes_[index_of(category)]);
  if (total_ > peak_total_) {
    peak_total_ = total_;
    peak_ = now_locked();
  }
  if (std::abs(total_ - sampled_total_) > std::max(kMinChange, peak_total_ / kFraction)) {
    keep(now_locked());
  }
}

void MemoryLedger::keep(const MemorySample& sample) {
  if (samples_.size() == max_samples_) {
    const auto fewer = thinned(samples_, max_samples_ / 2);
    samples_.assign(fewer.begin(), fewer.end());
  }
  samples_.push_back(sample);
  sampled_total_ = total_;
}

}  // namespace gradwire
