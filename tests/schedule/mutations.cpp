#include "tests/schedule/mutations.h"

namespace gradwire::test {

std::vector<Mutation> harmful_mutations() {
  std::vector<Mutation> all;
  for (const auto& some : {op_mutations(), order_mutations(), schedule_mutations()}) {
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

}  // namespace gradwire::test
