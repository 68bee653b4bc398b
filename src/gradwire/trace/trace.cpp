#include "gradwire/trace/trace.h"

#include <algorithm>
#include <array>

namespace gradwire {

std::string_view name_of(TraceKind kind) {
  constexpr std::array<std::string_view, 8> kNamesOfKinds = {
      "step", "data", "forward", "backward", "optimiser", "wait", "communication", "other"};
  return kNamesOfKinds[static_cast<std::size_t>(kind)];
}

TraceRecorder::TraceRecorder(const Clock& clock, std::size_t capacity)
    : clock_(clock), capacity_(std::max<std::size_t>(capacity, 1)) {}

std::uint32_t TraceRecorder::number_of(std::string_view name) {
  if (const auto known = numbers_.find(name); known != numbers_.end()) return known->second;
  if (names_.size() == kMaxNames) return number_of(names_.back());
  names_.emplace_back(names_.size() + 1 == kMaxNames ? "..." : name);
  const auto number = static_cast<std::uint32_t>(names_.size() - 1);
  numbers_.emplace(names_.back(), number);
  return number;
}

void TraceRecorder::record(TraceKind kind, std::string_view name, std::int64_t step, Time begin,
                           Time end, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  const TraceSpan span{.kind = kind,
                       .name = number_of(name.empty() ? name_of(kind) : name),
                       .step = step,
                       .begin = begin,
                       .end = std::max(begin, end),
                       .bytes = bytes};
  if (ring_.size() < capacity_) {
    ring_.push_back(span);
  } else {
    auto& oldest = ring_[recorded_ % capacity_];
    complete_since_ = std::max(complete_since_, oldest.end);
    oldest = span;
  }
  ++recorded_;
}

TraceLog TraceRecorder::log() const {
  const std::lock_guard lock(mutex_);
  TraceLog log{.names = names_,
               .spans = ring_,
               .dropped = recorded_ - ring_.size(),
               .complete_since = complete_since_};
  const auto oldest = static_cast<std::ptrdiff_t>(log.dropped % capacity_);
  std::rotate(log.spans.begin(), log.spans.begin() + oldest, log.spans.end());
  return log;
}

}  // namespace gradwire
