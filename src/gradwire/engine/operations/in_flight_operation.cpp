#include "gradwire/engine/operations/in_flight_operation.h"

#include <iterator>

namespace gradwire::engine {

Fingerprint InFlightOperation::fingerprint_for(Rank peer) const {
  Fingerprint fingerprint = operation.fingerprint();
  const schedule::Splits* const splits = operation.request().splits.get();
  const CompiledProgram::Exchange* const exchange = operation.program().exchange_with(peer);
  if (splits && exchange) {
    const auto part = static_cast<std::uint32_t>(exchange->rank_in_group);
    const auto elements = [&](schedule::Buffer buffer) {
      return splits->begin(buffer, part + 1) - splits->begin(buffer, part);
    };
    fingerprint.sent = elements(schedule::Buffer::input);
    fingerprint.expected = elements(schedule::Buffer::output);
  }
  return fingerprint;
}

std::size_t InFlightOperation::record_range(schedule::OpIndex op, std::size_t begin,
                                            std::size_t end) {
  if (begin > operation.done(op)) {
    out_of_order[op].emplace(begin, end);
    return operation.done(op);
  }
  const auto waiting = out_of_order.find(op);
  if (waiting == out_of_order.end()) return end;
  auto& intervals = waiting->second;
  while (!intervals.empty() && intervals.begin()->first == end) {
    end = intervals.begin()->second;
    intervals.erase(intervals.begin());
  }
  if (intervals.empty()) out_of_order.erase(waiting);
  return end;
}

bool InFlightOperation::has_out_of_order(schedule::OpIndex op, std::size_t begin,
                                         std::size_t end) const {
  const auto waiting = out_of_order.find(op);
  if (waiting == out_of_order.end()) return false;
  const auto next = waiting->second.lower_bound(end);  // First range that begins at or after `end`.
  return next != waiting->second.begin() && std::prev(next)->second > begin;
}

Rank InFlightOperation::next_expected_peer() {
  const auto& ops = operation.program().program.ops;
  while (next_receive < ops.size() &&
         (!is_receive(ops[next_receive]) || operation.complete(next_receive))) {
    ++next_receive;
  }
  return next_receive < ops.size() ? ops[next_receive].peer : -1;
}

}  // namespace gradwire::engine
