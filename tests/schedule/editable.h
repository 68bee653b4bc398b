#pragma once

#include <vector>

#include "gradwire/schedule/schedule.h"

namespace gradwire::test {

/// A program as a list of ops with their dependencies, which is easier to change than Program.
struct EditableOp {
  schedule::Op op;
  std::vector<schedule::OpIndex> after;
};

struct EditableProgram {
  std::vector<EditableOp> ops;
  std::vector<std::uint32_t> scratch_mirrors;

  /// Removes an op. Its dependents inherit its dependencies.
  void remove(schedule::OpIndex index);

  /// Inserts an op at `index`; the ops from there on shift by one.
  void insert(schedule::OpIndex index, EditableOp op);

  /// Moves op `from` to position `to`.
  void move_behind(schedule::OpIndex from, schedule::OpIndex to);
};

/// A schedule with all its programs in memory.
struct EditableSchedule {
  explicit EditableSchedule(const schedule::Schedule& schedule);

  schedule::Schedule build() const;

  schedule::Schedule frame;
  std::vector<EditableProgram> programs;
};

}  // namespace gradwire::test
