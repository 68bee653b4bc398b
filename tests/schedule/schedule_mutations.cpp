#include <algorithm>
#include <utility>

#include "gradwire/schedule/program_set.h"
#include "tests/schedule/mutation_sites.h"
#include "tests/schedule/mutations.h"

/// A whole program, or the frame around all programs, is replaced.
namespace gradwire::test {
namespace {

using enum schedule::Fault;

/// Merges two scratch slots.
bool share_scratch(EditableSchedule& s, Random& r) {
  // In recursive halving, one level may be complete, for all receives, before the next begins.
  if (s.frame.name == "halving_doubling" || s.frame.name == "recursive_halving") return false;
  std::vector<EditableProgram*> programs;
  for (EditableProgram& program : s.programs) {
    if (program.scratch_mirrors.size() > 1) programs.push_back(&program);
  }
  if (programs.empty()) return false;
  EditableProgram& program = *programs[r.below(programs.size())];
  for (EditableOp& entry : program.ops) {
    for (schedule::Slice* slice : {&entry.op.src, &entry.op.dst}) {
      if (slice->buffer == schedule::Buffer::scratch && slice->first == 1) slice->first = 0;
    }
  }
  return true;
}

bool mirror_nothing(EditableSchedule& s, Random&) {
  for (EditableProgram& program : s.programs) {
    if (program.scratch_mirrors.empty()) continue;
    program.scratch_mirrors.back() = s.frame.chunks;
    return true;
  }
  return false;
}

bool other_root(EditableSchedule& s, Random&) {
  const schedule::Collective collective = s.frame.spec.collective;
  const bool has_root =
      collective == schedule::Collective::broadcast || collective == schedule::Collective::reduce ||
      collective == schedule::Collective::gather || collective == schedule::Collective::scatter;
  if (!has_root || s.frame.ranks < 2) return false;
  s.frame.spec.root = (s.frame.spec.root + 1) % s.frame.ranks;
  return true;
}

bool more_chunks(EditableSchedule& s, Random&) {
  if (s.frame.spec.collective == schedule::Collective::barrier) return false;
  if (s.frame.spec.collective == schedule::Collective::broadcast && s.frame.ranks == 1)
    return false;
  ++s.frame.chunks;
  return true;
}

bool one_rank_more(EditableSchedule& s, Random&) {
  if (s.frame.spec.collective == schedule::Collective::point_to_point) return false;
  ++s.frame.ranks;
  s.programs.emplace_back();
  return true;
}

bool idle_rank(EditableSchedule& s, Random& r) {
  const auto site = pick(s, r, has_peer);
  if (site) site->program() = {};
  return site.has_value();
}

bool same_ops(const EditableProgram& a, const EditableProgram& b) {
  return std::ranges::equal(a.ops, b.ops, [](const EditableOp& x, const EditableOp& y) {
    return x.op.kind == y.op.kind && x.op.peer == y.op.peer && x.op.dst == y.op.dst &&
           x.op.src == y.op.src;
  });
}

bool exchange_programs(EditableSchedule& s, Random& r) {
  const auto a = r.below(s.programs.size());
  const auto b = r.below(s.programs.size());
  if (same_ops(s.programs[a], s.programs[b])) return false;
  std::swap(s.programs[a], s.programs[b]);
  return true;
}

}  // namespace

std::vector<Mutation> schedule_mutations() {
  return {
      {"share a scratch slot",
       {race, malformed, unmatched, undefined_read, wrong_result},
       share_scratch},
      {"mirror no chunk", {malformed}, mirror_nothing},
      {"another root", {malformed, undefined_read, wrong_result}, other_root},
      {"one chunk more", {malformed, wrong_result}, more_chunks},
      {"one rank more", {malformed, wrong_result}, one_rank_more},
      {"idle rank", {unmatched}, idle_rank},
      {"exchange programs",
       {malformed, unmatched, deadlock, race, undefined_read},
       exchange_programs},
  };
}

}  // namespace gradwire::test
