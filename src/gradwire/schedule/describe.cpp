#include "gradwire/schedule/describe.h"

#include <utility>

#include <fmt/format.h>

namespace gradwire::schedule {
namespace {

/// Both operands, in the order of the reduction.
std::string sum(const Op& op, std::string local, std::string incoming) {
  if (op.order == OperandOrder::incoming_first) std::swap(local, incoming);
  return fmt::format("{} + {}", local, incoming);
}

std::string action(const Op& op) {
  const std::string peer = fmt::format("rank {}", op.peer);
  switch (op.kind) {
    case OpKind::send:
      return fmt::format("{} -> {}", describe(op.src), peer);
    case OpKind::recv:
      return fmt::format("{} -> {}", peer, describe(op.dst));
    case OpKind::recv_reduce:
      return fmt::format("{} -> {}", sum(op, describe(op.src), peer), describe(op.dst));
    case OpKind::copy:
      return fmt::format("{} -> {}", describe(op.src), describe(op.dst));
    case OpKind::reduce:
      return fmt::format("{} -> {}", sum(op, describe(op.dst), describe(op.src)), describe(op.dst));
  }
  return "";
}

}  // namespace

std::string_view name_of(OpKind kind) {
  switch (kind) {
    case OpKind::send:
      return "send";
    case OpKind::recv:
      return "recv";
    case OpKind::recv_reduce:
      return "recv_reduce";
    case OpKind::copy:
      return "copy";
    case OpKind::reduce:
      return "reduce";
  }
  return "unknown";
}

std::string_view name_of(Buffer buffer) {
  switch (buffer) {
    case Buffer::input:
      return "input";
    case Buffer::output:
      return "output";
    case Buffer::scratch:
      return "scratch";
  }
  return "unknown";
}

std::string describe(const Slice& slice) {
  if (slice.count == 0) return "nothing";
  if (slice.count == 1) return fmt::format("{}[{}]", name_of(slice.buffer), slice.first);
  // 64 bits, since a malformed schedule must be describable too.
  const std::uint64_t end = std::uint64_t{slice.first} + slice.count;
  return fmt::format("{}[{}..{})", name_of(slice.buffer), slice.first, end);
}

std::string describe(const Op& op) {
  return fmt::format("{} {}{}", name_of(op.kind), action(op), op.postscale ? ", finish" : "");
}

std::string describe(const Schedule& schedule) {
  const std::string_view collective = name_of(schedule.spec.collective);
  const std::string what =
      schedule.name == collective ? schedule.name : fmt::format("{} {}", schedule.name, collective);
  return fmt::format("{} of {} rank{}", what, schedule.ranks, schedule.ranks == 1 ? "" : "s");
}

}  // namespace gradwire::schedule
