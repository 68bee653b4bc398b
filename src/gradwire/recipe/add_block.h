#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "gradwire/train/activation/activation_checkpoint.h"
#include "gradwire/train/pipeline/layers.h"

namespace gradwire::recipe {

/// Adds a block "blockN". If `checkpoint` is true, its activations are checkpointed. Its parameters
/// and their names are the same either way.
template <class Impl, class... Arguments>
void add_block(Layers& layers, std::int64_t number, bool checkpoint, Arguments... arguments) {
  const auto name = "block" + std::to_string(number);
  if (checkpoint) {
    layers.add(name, [=] { return std::make_shared<CheckpointedImpl<Impl>>(arguments...); });
  } else {
    layers.add(name, [=] { return std::make_shared<Impl>(arguments...); });
  }
}

}  // namespace gradwire::recipe
