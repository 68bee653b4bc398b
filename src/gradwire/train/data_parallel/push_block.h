#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include <torch/torch.h>

#include "gradwire/train/activation/activation_checkpoint.h"

namespace gradwire {

/// Appends a block "blockN" to a model. If `checkpoint` is true, its activations are checkpointed.
/// Its parameters and their names are the same either way.
template <class Impl, class... Arguments>
void push_block(torch::nn::Sequential& model, std::int64_t number, bool checkpoint,
                Arguments&&... arguments) {
  const auto name = "block" + std::to_string(number);
  if (checkpoint) {
    model->push_back(
        name, std::make_shared<CheckpointedImpl<Impl>>(std::forward<Arguments>(arguments)...));
  } else {
    model->push_back(name, std::make_shared<Impl>(std::forward<Arguments>(arguments)...));
  }
}

}  // namespace gradwire
