#include "gradwire/engine/flight.h"

#include <iterator>

namespace gradwire {

Fingerprint Flight::fingerprint_for(Rank peer) const {
  Fingerprint fingerprint = operation.fingerprint();
  if (const Splits* splits = operation.request().splits.get()) {
    const auto part = static_cast<std::uint32_t>(peer);
    const auto elements = [&](Buffer buffer) {
      return splits->begin(buffer, part + 1) - splits->begin(buffer, part);
    };
    fingerprint.sent = elements(Buffer::input);
    fingerprint.expected = elements(Buffer::output);
  }
  return fingerprint;
}

std::size_t Flight::passed(OpIndex op, std::size_t begin, std::size_t end) {
  if (begin > operation.done(op)) {
    ahead[op].emplace(begin, end);
    return operation.done(op);
  }
  const auto waiting = ahead.find(op);
  if (waiting == ahead.end()) return end;
  auto& intervals = waiting->second;
  while (!intervals.empty() && intervals.begin()->first == end) {
    end = intervals.begin()->second;
    intervals.erase(intervals.begin());
  }
  if (intervals.empty()) ahead.erase(waiting);
  return end;
}

bool Flight::passed_ahead(OpIndex op, std::size_t begin, std::size_t end) const {
  const auto waiting = ahead.find(op);
  if (waiting == ahead.end()) return false;
  const auto next = waiting->second.lower_bound(end);  // First range that begins at or after `end`.
  return next != waiting->second.begin() && std::prev(next)->second > begin;
}

Rank Flight::awaits() {
  const auto& ops = operation.program().program.ops;
  while (awaited < ops.size() && (!is_receive(ops[awaited]) || operation.complete(awaited))) {
    ++awaited;
  }
  return awaited < ops.size() ? ops[awaited].peer : -1;
}

}  // namespace gradwire
