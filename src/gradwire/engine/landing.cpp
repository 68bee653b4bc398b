#include "gradwire/engine/landing.h"

#include <cstring>

#include "gradwire/engine/reduction.h"

namespace gradwire {
namespace {

tl::unexpected<Error> misplaced(const char* what, const Operation& operation) {
  return failure(ErrorKind::corrupted, what + operation.describe());
}

/// Returns true if the frame is a missing piece of message `op`, in whole elements; the next one,
/// if frames arrive in order.
bool is_missing(const Flight& flight, OpIndex op, const FrameHeader& header, bool in_order) {
  const Operation& operation = flight.operation;
  const std::size_t size = operation.size(op);
  const std::size_t end = header.offset + header.length;
  const std::size_t element = size_of(operation.fingerprint().type);
  if (operation.complete(op) || header.offset > size || end > size ||
      (header.length == 0 && size > 0))
    return false;
  if (header.offset % element != 0 || end % element != 0) return false;
  if (header.offset == operation.done(op)) return !flight.passed_ahead(op, header.offset, end);
  return !in_order && header.offset > operation.done(op) &&
         !flight.passed_ahead(op, header.offset, end);
}

}  // namespace

void land(const Landing& landing, std::size_t offset, ConstBytes bytes) {
  if (landing.to == nullptr || bytes.empty()) return;
  std::byte* to = landing.to + offset;
  if (landing.operand == nullptr) {
    std::memcpy(to, bytes.data(), bytes.size());
    return;
  }
  const std::byte* local = landing.operand + offset;
  const bool local_first = landing.order == Order::local_first;
  combine(to, local_first ? local : bytes.data(), local_first ? bytes.data() : local,
          bytes.size() / size_of(landing.type), landing.type, landing.op);
}

Result<Landing> landing_of(const Flight& flight, Rank from, const FrameHeader& header,
                           bool in_order) {
  const Operation& operation = flight.operation;
  const CompiledProgram::Exchange* exchange = operation.program().exchange_with(from);
  if (exchange == nullptr || header.message >= exchange->receives.size() ||
      !flight.announced_by(from)) {
    return misplaced("unexpected data frame for ", operation);
  }
  const OpIndex index = exchange->receives[header.message];
  if (!is_missing(flight, index, header, in_order))
    return misplaced("misplaced or duplicate data frame for ", operation);
  if (operation.allowance(index).bytes < header.offset + header.length) {
    return misplaced("data frame ahead of its dependencies for ", operation);
  }
  const Op& op = operation.program().program.ops[index];
  const std::byte* operand =
      op.kind == OpKind::recv_reduce ? operation.source(index) + header.offset : nullptr;
  return Landing{.to = operation.destination(index) + header.offset,
                 .operand = operand,
                 .type = operation.fingerprint().type,
                 .op = operation.fingerprint().op,
                 .order = op.order};
}

}  // namespace gradwire
