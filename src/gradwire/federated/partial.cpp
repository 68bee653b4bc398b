#include "gradwire/federated/partial.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include "gradwire/base/refuse.h"
#include "gradwire/base/suggest.h"

namespace gradwire::federated {
namespace {

constexpr std::array<std::string_view, 3> kPartials{"count", "drop", "normalize"};

}  // namespace

std::string_view name_of(Partial partial) {
  return kPartials[static_cast<std::size_t>(partial)];
}

Partial partial_named(std::string_view name) {
  const auto found = std::ranges::find(kPartials, name);
  if (found == kPartials.end()) refuse(unknown_name("rule of partial work", name, kPartials));
  return static_cast<Partial>(found - kPartials.begin());
}

}  // namespace gradwire::federated
