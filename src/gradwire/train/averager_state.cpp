#include "gradwire/train/averager_state.h"

#include <cstring>

#include "gradwire/torch/tensor_span.h"

namespace gradwire {
namespace {

torch::ScalarType scalar_type_of(DataType type) {
  switch (type) {
    case DataType::float32:
      return torch::kFloat32;
    case DataType::float64:
      return torch::kFloat64;
    case DataType::bfloat16:
      return torch::kBFloat16;
    case DataType::float16:
      return torch::kFloat16;
    case DataType::int32:
      return torch::kInt32;
    case DataType::int64:
      return torch::kInt64;
    case DataType::uint8:
      break;
  }
  return torch::kUInt8;
}

}  // namespace

std::vector<NamedTensor> state_of(Averager& averager, const std::string& prefix) {
  std::vector<NamedTensor> copies;
  for (const auto& [name, span] : averager.state()) {
    auto copy = torch::empty({static_cast<std::int64_t>(span.count)}, scalar_type_of(span.type));
    if (span.count > 0) std::memcpy(copy.data_ptr(), span.data, copy.nbytes());
    copies.push_back({prefix + name, copy});
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
