#pragma once

#include <ostream>

#include "gradwire/schedule/catalogue.h"
#include "gradwire/schedule/verify/verifier.h"
#include "tests/schedule/mutations.h"

/// How GoogleTest prints our types.
namespace gradwire::schedule {

inline void PrintTo(Fault fault, std::ostream* out) {
  *out << name_of(fault);
}

inline void PrintTo(const Algorithm& algorithm, std::ostream* out) {
  *out << name_of(algorithm.collective) << ' ' << algorithm.name;
}

}  // namespace gradwire::schedule

namespace gradwire::test {

inline void PrintTo(const Mutation& mutation, std::ostream* out) {
  *out << mutation.name;
}

}  // namespace gradwire::test
