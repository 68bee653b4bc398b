#include "gradwire/train/checkpoint/averager_state.h"

#include "gradwire/torch/tensor_span.h"

namespace gradwire {
std::vector<NamedTensor> state_of(Averager& averager, const std::string& prefix) {
  std::vector<NamedTensor> copies;
  for (const auto& [name, span] : averager.state()) {
    copies.push_back({prefix + name, copy_of(span)});
  }
  return copies;
}

void load_state(Averager& averager, const std::map<std::string, torch::Tensor>& saved,
                const std::string& prefix) {
  std::vector<Averager::SavedState> states;
  for (const auto& [name, tensor] : saved) {
    if (!name.starts_with(prefix)) continue;
    states.push_back({name.substr(prefix.size()), lend(tensor, {"load_state", name, 0})});
  }
  averager.load_state(states);
}

}  // namespace gradwire
