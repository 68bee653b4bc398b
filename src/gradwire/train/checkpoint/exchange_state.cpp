#include "gradwire/train/checkpoint/exchange_state.h"

#include "gradwire/torch/tensor_span.h"

namespace gradwire {
std::vector<NamedTensor> state_of(Exchange& exchange, const std::string& prefix) {
  std::vector<NamedTensor> copies;
  for (const auto& [name, span] : exchange.state()) {
    copies.push_back({prefix + name, copy_of(span)});
  }
  return copies;
}

void load_state(Exchange& exchange, const std::map<std::string, torch::Tensor>& saved,
                const std::string& prefix) {
  std::vector<Exchange::SavedState> states;
  for (const auto& [name, tensor] : saved) {
    if (!name.starts_with(prefix)) continue;
    states.push_back({name.substr(prefix.size()), lend(tensor, {"load_state", name, 0})});
  }
  exchange.load_state(states);
}

}  // namespace gradwire
