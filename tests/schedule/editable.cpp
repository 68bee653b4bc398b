#include "tests/schedule/editable.h"

#include <algorithm>
#include <memory>
#include <utility>

namespace gradwire::testing_support {
namespace {

void add_unless_there(std::vector<OpIndex>& indices, OpIndex index) {
  if (std::ranges::find(indices, index) == indices.end()) indices.push_back(index);
}

EditableProgram editable(const Program& program) {
  EditableProgram result;
  result.scratch_mirrors = program.scratch_mirrors;
  for (const Op& op : program.ops) {
    const auto after = program.after(op);
    result.ops.push_back({op, {after.begin(), after.end()}});
  }
  return result;
}

Program runnable(const EditableProgram& program) {
  Program result;
  result.scratch_mirrors = program.scratch_mirrors;
  for (const EditableOp& op : program.ops) {
    result.ops.push_back(op.op);
    result.ops.back().after = {static_cast<std::uint32_t>(result.dependencies.size()),
                               static_cast<std::uint32_t>(op.after.size())};
    result.dependencies.insert(result.dependencies.end(), op.after.begin(), op.after.end());
  }
  return result;
}

}  // namespace

void EditableProgram::remove(OpIndex index) {
  const std::vector<OpIndex> inherited = ops[index].after;
  ops.erase(ops.begin() + index);
  for (EditableOp& op : ops) {
    if (std::erase(op.after, index) > 0) {
      for (OpIndex earlier : inherited) add_unless_there(op.after, earlier);
    }
    for (OpIndex& earlier : op.after) earlier -= earlier > index ? 1 : 0;
  }
}

void EditableProgram::insert(OpIndex index, EditableOp added) {
  for (EditableOp& op : ops) {
    for (OpIndex& earlier : op.after) earlier += earlier >= index ? 1 : 0;
  }
  ops.insert(ops.begin() + index, std::move(added));
}

void EditableProgram::move_behind(OpIndex from, OpIndex to) {
  std::rotate(ops.begin() + from, ops.begin() + from + 1, ops.begin() + to + 1);
  for (EditableOp& op : ops) {
    for (OpIndex& earlier : op.after) {
      if (earlier == from) {
        earlier = to;
      } else if (earlier > from && earlier <= to) {
        --earlier;
      }
    }
  }
}

EditableSchedule::EditableSchedule(const Schedule& schedule) : frame(schedule) {
  for (Rank rank = 0; rank < schedule.ranks; ++rank) {
    programs.push_back(editable(schedule.program(rank)));
  }
}

Schedule EditableSchedule::build() const {
  auto built = std::make_shared<std::vector<Program>>();
  for (const EditableProgram& program : programs) built->push_back(runnable(program));
  Schedule schedule = frame;
  schedule.program = [built](Rank rank) { return (*built)[static_cast<std::size_t>(rank)]; };
  return schedule;
}

}  // namespace gradwire::testing_support
