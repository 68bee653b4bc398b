#include "gradwire/schedule/draw/drawing.h"

#include <algorithm>

#include <fmt/format.h>

#include "gradwire/base/units.h"
#include "gradwire/schedule/describe.h"

namespace gradwire::schedule {
namespace {

/// First data chunk of a slice. Where ranks have parts, a rank's own part is the chunk with its
/// number. In all_to_all, a part is numbered by the rank that it comes from.
std::uint32_t data_chunk(const Schedule& schedule, const Program& program, Rank rank,
                         const Slice& slice) {
  if (slice.count == 0) return 0;
  if (slice.buffer == Buffer::scratch) return program.scratch_mirrors[slice.first];
  const Collective collective = schedule.spec.collective;
  const bool is_input = slice.buffer == Buffer::input;
  const bool gathers = collective == Collective::all_gather || collective == Collective::gather ||
                       collective == Collective::all_to_all;
  const bool scatters =
      collective == Collective::reduce_scatter || collective == Collective::scatter;
  const bool own_part = is_input ? gathers : scatters;
  return own_part ? static_cast<std::uint32_t>(rank) : slice.first;
}

std::string chunk_text(std::uint32_t first, std::uint32_t count) {
  if (count == 0) return "";
  if (count == 1) return fmt::format("c{}", first);
  return fmt::format("c{}-{}", first, first + count - 1);
}

}  // namespace

std::string label_of(const Schedule& schedule, const Program& program, Rank rank, const Op& op) {
  const std::string chunk =
      chunk_text(data_chunk(schedule, program, rank, extent(op)), extent(op).count);
  switch (op.kind) {
    case OpKind::send:
      return fmt::format("{}>{}", chunk, op.peer);
    case OpKind::recv:
      return fmt::format("{}<{}", chunk, op.peer);
    case OpKind::recv_reduce:
      return fmt::format("{}<+{}", chunk, op.peer);
    case OpKind::copy:
      return chunk + "=";
    case OpKind::reduce:
      return chunk + "+";
  }
  return "";
}

Drawing drawing_of(const ProgramSet& programs, const OpIntervals& ops, std::string_view how) {
  const Schedule& schedule = programs.schedule();
  Drawing drawing{describe(schedule), schedule.ranks, schedule.chunks, {}};
  Duration total = Duration::zero();
  for (NodeId node = 0; node < programs.size(); ++node) {
    const OpRef ref = programs.ref(node);
    const Program& program = programs.program(ref.rank);
    const Op& op = programs.op(node);
    const Interval when = ops[static_cast<std::size_t>(ref.rank)][ref.op];
    total = std::max(total, when.end);
    drawing.events.push_back({.rank = ref.rank,
                              .op = ref.op,
                              .kind = op.kind,
                              .peer = op.peer,
                              .chunk = data_chunk(schedule, program, ref.rank, extent(op)),
                              .begin = when.begin,
                              .end = when.end,
                              .label = label_of(schedule, program, ref.rank, op)});
  }
  if (!how.empty()) drawing.title += fmt::format(", {}", how);
  drawing.title += fmt::format(": {}", format_duration(total));
  return drawing;
}

Drawing drawing_of(const ScheduleCost& cost, const Estimate& estimate) {
  const ProgramSet& programs = cost.programs();
  Drawing drawing = drawing_of(programs, estimate.ops, "");
  for (OpRef ref : estimate.critical_path) drawing.events[programs.node(ref)].critical = true;
  return drawing;
}

}  // namespace gradwire::schedule
