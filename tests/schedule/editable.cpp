#include "tests/schedule/editable.h"

#include <algorithm>
#include <memory>
#include <utility>

namespace gradwire::test {
namespace {

void add_unless_there(std::vector<schedule::OpIndex>& indices, schedule::OpIndex index) {
  if (std::ranges::find(indices, index) == indices.end()) indices.push_back(index);
}

EditableProgram editable(const schedule::Program& program) {
  EditableProgram result;
  result.scratch_mirrors = program.scratch_mirrors;
  for (const schedule::Op& op : program.ops) {
    const auto after = program.after(op);
    result.ops.push_back({op, {after.begin(), after.end()}});
  }
  return result;
}

schedule::Program runnable(const EditableProgram& program) {
  schedule::Program result;
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

void EditableProgram::remove(schedule::OpIndex index) {
  const std::vector<schedule::OpIndex> inherited = ops[index].after;
  ops.erase(ops.begin() + index);
  for (EditableOp& op : ops) {
    if (std::erase(op.after, index) > 0) {
      for (schedule::OpIndex earlier : inherited) add_unless_there(op.after, earlier);
    }
    for (schedule::OpIndex& earlier : op.after) earlier -= earlier > index ? 1 : 0;
  }
}

void EditableProgram::insert(schedule::OpIndex index, EditableOp added) {
  for (EditableOp& op : ops) {
    for (schedule::OpIndex& earlier : op.after) earlier += earlier >= index ? 1 : 0;
  }
  ops.insert(ops.begin() + index, std::move(added));
}

void EditableProgram::move_behind(schedule::OpIndex from, schedule::OpIndex to) {
  std::rotate(ops.begin() + from, ops.begin() + from + 1, ops.begin() + to + 1);
  for (EditableOp& op : ops) {
    for (schedule::OpIndex& earlier : op.after) {
      if (earlier == from) {
        earlier = to;
      } else if (earlier > from && earlier <= to) {
        --earlier;
      }
    }
  }
}

EditableSchedule::EditableSchedule(const schedule::Schedule& schedule) : frame(schedule) {
  for (Rank rank = 0; rank < schedule.ranks; ++rank) {
    programs.push_back(editable(schedule.program(rank)));
  }
}

schedule::Schedule EditableSchedule::build() const {
  auto built = std::make_shared<std::vector<schedule::Program>>();
  for (const EditableProgram& program : programs) built->push_back(runnable(program));
  schedule::Schedule schedule = frame;
  schedule.program = [built](Rank rank) { return (*built)[static_cast<std::size_t>(rank)]; };
  return schedule;
}

}  // namespace gradwire::test
