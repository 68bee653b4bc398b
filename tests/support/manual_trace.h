#pragma once

#include <atomic>
#include <chrono>
#include <string>

#include "gradwire/base/clock.h"
#include "gradwire/trace/trace.h"

namespace gradwire::test {

/// A clock that the test sets.
struct ManualClock final : Clock {
  Time now() const override { return Time(std::chrono::milliseconds(ms.load())); }

  std::atomic<std::int64_t> ms{0};
};

inline Time at(std::int64_t ms) {
  return Time(std::chrono::milliseconds(ms));
}

/// A hand-written log, in milliseconds.
struct ManualLog {
  ManualLog& span(TraceKind kind, std::int64_t begin, std::int64_t end, std::int64_t step = 0,
                  std::uint64_t bytes = 0) {
    log.spans.push_back({.kind = kind,
                         .name = static_cast<std::uint32_t>(kind),
                         .step = step,
                         .begin = at(begin),
                         .end = at(end),
                         .bytes = bytes});
    return *this;
  }

  TraceLog log{
      .names = {"step", "data", "forward", "backward", "optimiser", "wait", "bucket", "other"}};
};

}  // namespace gradwire::test
