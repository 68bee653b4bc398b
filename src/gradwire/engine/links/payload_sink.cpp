#include "gradwire/engine/links/payload_sink.h"

#include <cstring>

#include "gradwire/engine/operations/reduction.h"

namespace gradwire::engine {
namespace {

tl::unexpected<Error> misplaced(const char* what, const Operation& operation) {
  return failure(ErrorKind::corrupted, what + operation.describe());
}

/// Returns true if the frame is a missing piece of message `op`, in whole elements; the next one,
/// if frames arrive in order.
bool is_missing(const InFlightOperation& flight, schedule::OpIndex op,
                const net::FrameHeader& header, bool in_order) {
  const Operation& operation = flight.operation;
  const std::size_t size = operation.size(op);
  const std::size_t end = header.offset + header.length;
  const std::size_t element = size_of(operation.fingerprint().type);
  if (operation.complete(op) || header.offset > size || end > size ||
      (header.length == 0 && size > 0))
    return false;
  if (header.offset % element != 0 || end % element != 0) return false;
  if (header.offset == operation.done(op)) return !flight.has_out_of_order(op, header.offset, end);
  return !in_order && header.offset > operation.done(op) &&
         !flight.has_out_of_order(op, header.offset, end);
}

}  // namespace

void write_payload(const PayloadSink& sink, std::size_t offset, ConstBytes bytes) {
  if (sink.to == nullptr || bytes.empty()) return;
  std::byte* to = sink.to + offset;
  if (sink.operand == nullptr) {
    std::memcpy(to, bytes.data(), bytes.size());
    return;
  }
  const std::byte* local = sink.operand + offset;
  const bool local_first = sink.order == schedule::OperandOrder::local_first;
  combine(to, local_first ? local : bytes.data(), local_first ? bytes.data() : local,
          bytes.size() / size_of(sink.type), sink.type, sink.op);
}

Result<PayloadSink> resolve_sink(const InFlightOperation& flight, Rank from,
                                 const net::FrameHeader& header, bool in_order) {
  const Operation& operation = flight.operation;
  const CompiledProgram::Exchange* exchange = operation.program().exchange_with(from);
  if (exchange == nullptr || header.message >= exchange->receives.size() ||
      !flight.announced_by(from)) {
    return misplaced("unexpected data frame for ", operation);
  }
  const schedule::OpIndex index = exchange->receives[header.message];
  if (!is_missing(flight, index, header, in_order))
    return misplaced("misplaced or duplicate data frame for ", operation);
  if (operation.allowance(index).bytes < header.offset + header.length) {
    return misplaced("data frame ahead of its dependencies for ", operation);
  }
  const schedule::Op& op = operation.program().program.ops[index];
  const std::byte* operand =
      op.kind == schedule::OpKind::recv_reduce ? operation.source(index) + header.offset : nullptr;
  return PayloadSink{.to = operation.destination(index) + header.offset,
                     .operand = operand,
                     .type = operation.fingerprint().type,
                     .op = operation.fingerprint().op,
                     .order = op.order};
}

}  // namespace gradwire::engine
