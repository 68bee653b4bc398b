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

  /// Takes an op out. What came after it then comes after what it came after.
  void remove(OpIndex index);

  /// Puts an op in at `index`, which those from there on make room for.
  void insert(OpIndex index, EditableOp op);

  /// Makes op `from` the last but those after `to`, that is, op `to`.
  void move_behind(OpIndex from, OpIndex to);
};

/// A schedule with all its programs at hand.
struct EditableSchedule {
  explicit EditableSchedule(const Schedule& schedule);

  Schedule build() const;

  Schedule frame;
  std::vector<EditableProgram> programs;
};

}  // namespace gradwire::testing_support
