#pragma once

#include <string_view>
#include <vector>

#include "gradwire/base/random.h"
#include "gradwire/schedule/verify/verifier.h"
#include "tests/schedule/editable.h"

namespace gradwire::test {

/// One way to break a schedule. `apply` changes it at a random place, and returns false without a
/// change if it has none. The result always has one of `faults`.
struct Mutation {
  std::string_view name;
  std::vector<schedule::Fault> faults;
  bool (*apply)(EditableSchedule& schedule, Random& random);
};

/// The mutations of op_mutations.cpp, order_mutations.cpp and schedule_mutations.cpp.
std::vector<Mutation> op_mutations();
std::vector<Mutation> order_mutations();
std::vector<Mutation> schedule_mutations();

/// All of them.
std::vector<Mutation> harmful_mutations();

/// Makes a random change that may be harmless: an operand order, a dependency, a chunk, the order
/// of two ops, a finish flag.
void change_something(EditableSchedule& schedule, Random& random);

}  // namespace gradwire::test
