#pragma once

#include <vector>

#include "gradwire/schedule/schedule.h"

namespace gradwire::testing_support {

/// A program as a list of ops with their dependencies, which is easier to change than Program.
struct EditableOp {
  Op op;
  std::vector<OpIndex> after;
};

struct EditableProgram {
  std::vector<EditableOp> ops;
  std::vector<std::uint32_t> scratch_mirrors;

  /// Removes an op. Its dependents inherit its dependencies.
  void remove(OpIndex index);

  /// Inserts an op at `index`; the ops from there on shift by one.
  void insert(OpIndex index, EditableOp op);

  /// Moves op `from` to position `to`.
  void move_behind(OpIndex from, OpIndex to);
};

/// A schedule with all its programs in memory.
struct EditableSchedule {
  explicit EditableSchedule(const Schedule& schedule);

  Schedule build() const;

  Schedule frame;
  std::vector<EditableProgram> programs;
};

}  // namespace gradwire::testing_support
