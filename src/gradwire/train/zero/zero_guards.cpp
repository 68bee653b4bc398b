// How ZeroCore detects changes to its module by other code, which training would silently undo or
// ignore. It checks each parameter's location and version counter, not its elements.
#include <fmt/format.h>

#include "gradwire/base/error.h"
#include "gradwire/train/zero/zero_core.h"

namespace gradwire {
namespace {

constexpr const char* kRemedy = "change a module before you construct gradwire::Zero from it";

}  // namespace

void ZeroCore::fail(const std::string& message) const {
  const auto text = fmt::format("rank {}: Zero: {}", rank(), message);
  abort_group(*group(), text);
  throw Exception(ErrorKind::invalid_argument, text);
}

void ZeroCore::require_own_module(const torch::nn::Module& module) const {
  for (const auto& item : module.named_parameters()) {
    const auto& parameter = item.value();
    if (!parameter.requires_grad() || unit_of_.contains(parameter.unsafeGetTensorImpl())) continue;
    fail(
        fmt::format("'{}' is trainable, but was absent or frozen when the Zero was constructed, so "
                    "it would never be stepped; {}",
                    item.key(), kRemedy));
  }
}

void ZeroCore::require_own_parameters() const {
  for (const auto& unit : units_) {
    if (const auto* member = unit.first_moved()) {
      fail(fmt::format(
          "'{}' has been moved to other memory (by to(), torch::load() or another wrapper), which "
          "steps do not update; {}, or load into its pieces() and call loaded()",
          member->name, kRemedy));
    }
    if (const auto* member = unit.first_written()) {
      fail(fmt::format(
          "'{}' has been written to, which the next step would overwrite with what the optimizer "
          "steps ({}); {}, or write to its pieces() and call loaded()",
          member->name, unit.has_master() ? "the master copy" : "this rank's shard", kRemedy));
    }
  }
}

}  // namespace gradwire
