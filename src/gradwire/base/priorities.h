#pragma once

#include <cstddef>

/// Priorities of gradwire's own operations. Those of one communicator are compared with each other,
/// so they are all here; operations of users have 0 unless they say otherwise.
namespace gradwire {

/// Messages between stages of a pipeline: a rank waits for them sooner than for reductions.
/// Gradients overtake activations, because they end the life of activations.
inline constexpr int kActivationPriority = 1 << 24;
inline constexpr int kGradientPriority = kActivationPriority + 1;

/// Reduction number `place` of a pass: the next forward needs the units that backward reaches last
/// first.
constexpr int reduction_priority(std::size_t place) {
  return 2 * static_cast<int>(place);
}

/// Gather of a unit after its step (ZeRO 1 and 2): it is needed as soon as its reduction was.
constexpr int gather_after_step_priority(std::size_t unit) {
  return reduction_priority(unit) + 1;
}

/// Gather number `number` of parameters for blocks (ZeRO 3). Missing parameters stall the
/// computation at once, gradients only later, so gathers have priority over reductions, and earlier
/// gathers over later ones.
constexpr int gather_for_block_priority(int number) {
  constexpr int kFirst = 1 << 24;
  return kFirst - number % kFirst;
}

}  // namespace gradwire
