#include "gradwire/schedule/verify/form.h"

#include <algorithm>
#include <span>

#include <fmt/format.h>

#include "gradwire/schedule/describe.h"

namespace gradwire::schedule::proof {
namespace {

/// Description of a fault; empty if there is none.
using Complaint = std::string;

bool is_rank(Rank rank, int ranks) {
  return rank >= 0 && rank < ranks;
}

bool reads_src(const Op& op) {
  return op.kind != OpKind::recv;
}

bool writes_dst(const Op& op) {
  return op.kind != OpKind::send;
}

bool has_peer(const Op& op) {
  return sends(op) || receives(op);
}

/// Returns true if scratch slots can form one slice: they mirror consecutive chunks.
bool lie_together(const Program& program, const Slice& slots) {
  const auto mirrors = std::span(program.scratch_mirrors).subspan(slots.first, slots.count);
  for (std::size_t i = 1; i < mirrors.size(); ++i) {
    if (mirrors[i] != mirrors[i - 1] + 1) return false;
  }
  return true;
}

Complaint check_slice(const Schedule& schedule, Rank rank, const Program& program,
                      const Slice& slice, bool used) {
  const bool should_be_empty = !used || schedule.spec.collective == Collective::barrier;
  if (should_be_empty) {
    return slice.count == 0 ? ""
                            : fmt::format("{} must be empty", gradwire::schedule::describe(slice));
  }
  if (slice.count == 0) return "a slice is empty";
  const std::uint32_t chunks = chunks_of(schedule, rank, program, slice.buffer);
  if (slice.first >= chunks || slice.count > chunks - slice.first) {
    return fmt::format("{} reaches beyond its {} chunks", gradwire::schedule::describe(slice),
                       chunks);
  }
  if (slice.buffer == Buffer::scratch && !lie_together(program, slice)) {
    return fmt::format("{} does not mirror consecutive chunks",
                       gradwire::schedule::describe(slice));
  }
  return "";
}

Complaint check_slices(const Schedule& schedule, Rank rank, const Program& program, const Op& op) {
  Complaint wrong = check_slice(schedule, rank, program, op.src, reads_src(op));
  if (wrong.empty()) wrong = check_slice(schedule, rank, program, op.dst, writes_dst(op));
  if (!wrong.empty()) return wrong;
  if (writes_dst(op) && op.dst.count > 0 && op.dst.buffer == Buffer::input) {
    return "it writes to the input";
  }
  if (reads_src(op) && writes_dst(op) &&
      !same_length(schedule, {rank, program, op.src}, {rank, program, op.dst})) {
    return fmt::format("{} and {} differ in length", gradwire::schedule::describe(op.src),
                       gradwire::schedule::describe(op.dst));
  }
  return "";
}

Complaint check_peer(const Schedule& schedule, Rank rank, const Op& op) {
  if (!has_peer(op)) return op.peer == -1 ? "" : "a local op has a peer";
  if (!is_rank(op.peer, schedule.ranks)) return fmt::format("there is no rank {}", op.peer);
  return op.peer == rank ? "its peer is its own rank" : "";
}

Complaint check_kind(const Schedule& schedule, const Op& op) {
  const Collective collective = schedule.spec.collective;
  const bool combines = op.kind == OpKind::reduce || op.kind == OpKind::recv_reduce;
  if ((combines || op.postscale) && !reduces(collective)) {
    return fmt::format("{} reduces nothing", name_of(collective));
  }
  if (op.postscale && (op.kind == OpKind::send || op.kind == OpKind::recv)) {
    return "finish is set, but it computes nothing";
  }
  return "";
}

Complaint check_dependencies(const Program& program, OpIndex index) {
  const DependencySpan& span = program.ops[index].after;
  if (span.first > program.dependencies.size() ||
      span.count > program.dependencies.size() - span.first) {
    return "its dependencies exceed the program's list";
  }
  for (OpIndex earlier : program.after(program.ops[index])) {
    if (earlier >= index) return fmt::format("it depends on op {}, which is not earlier", earlier);
  }
  return "";
}

Complaint check_op(const Schedule& schedule, const Program& program, Rank rank, OpIndex index) {
  const Op& op = program.ops[index];
  Complaint wrong = check_peer(schedule, rank, op);
  if (wrong.empty()) wrong = check_kind(schedule, op);
  if (wrong.empty()) wrong = check_slices(schedule, rank, program, op);
  if (wrong.empty()) wrong = check_dependencies(program, index);
  return wrong;
}

Complaint check_numbers(const Schedule& schedule) {
  const CollectiveSpec& spec = schedule.spec;
  if (schedule.ranks < 1 || schedule.ranks > kMaxRanks) {
    return fmt::format("the number of ranks must be from 1 to {}", kMaxRanks);
  }
  if (schedule.chunks < 1) return "there must be at least one chunk";
  if (!is_rank(spec.root, schedule.ranks) || !is_rank(spec.target, schedule.ranks)) {
    return fmt::format("root {} or target {} is not a rank", spec.root, spec.target);
  }
  if (has_parts(spec.collective) && schedule.chunks != static_cast<std::uint32_t>(schedule.ranks)) {
    return fmt::format("{} chunks, but there must be one per rank", schedule.chunks);
  }
  return schedule.program ? "" : "it has no program function";
}

}  // namespace

MaybeViolation check_spec(const Schedule& schedule) {
  const Complaint wrong = check_numbers(schedule);
  if (wrong.empty()) return std::nullopt;
  return make_violation(schedule, Fault::malformed, wrong);
}

MaybeViolation check_ops(const ProgramSet& programs) {
  const Schedule& schedule = programs.schedule();
  for (Rank rank = 0; rank < programs.ranks(); ++rank) {
    const Program& program = programs.program(rank);
    const auto beyond = [&](std::uint32_t mirrored) { return mirrored >= schedule.chunks; };
    const bool has_scratch = !program.scratch_mirrors.empty();
    if (has_scratch && schedule.spec.collective == Collective::all_to_all) {
      return make_violation(
          schedule, Fault::malformed,
          fmt::format("rank {}: all_to_all has no scratch, as its parts differ in size", rank));
    }
    if (std::ranges::any_of(program.scratch_mirrors, beyond)) {
      return make_violation(
          schedule, Fault::malformed,
          fmt::format("rank {}: a scratch slot mirrors a chunk that does not exist", rank));
    }
    for (OpIndex op = 0; op < program.ops.size(); ++op) {
      const Complaint wrong = check_op(schedule, program, rank, op);
      if (wrong.empty()) continue;
      return make_violation(programs, programs.node(rank, op), Fault::malformed, wrong);
    }
  }
  return std::nullopt;
}

MaybeViolation check_messages(const ProgramSet& programs, const std::vector<NodeId>& partner) {
  for (NodeId node = 0; node < programs.size(); ++node) {
    const Op& op = programs.op(node);
    if (!has_peer(op)) continue;
    const NodeId other = partner[node];
    if (other == kNoNode) {
      return make_violation(
          programs, node, Fault::unmatched,
          fmt::format("rank {} never {}", op.peer, sends(op) ? "receives it" : "sends it"));
    }
    const Rank rank = programs.ref(node).rank;
    const PlacedSlice mine{rank, programs.program(rank), extent(op)};
    const PlacedSlice theirs{op.peer, programs.program(op.peer), extent(programs.op(other))};
    if (sends(op) && !same_length(programs.schedule(), mine, theirs)) {
      return make_violation(
          programs, node, Fault::unmatched,
          fmt::format("it matches {}, which differs in length", describe(programs, other)));
    }
  }
  return std::nullopt;
}

}  // namespace gradwire::schedule::proof
