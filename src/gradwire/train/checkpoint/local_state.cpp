#include "gradwire/train/checkpoint/local_state.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "gradwire/base/refuse.h"
#include "gradwire/checkpoint/consolidate.h"
#include "gradwire/torch/tensor_span.h"

namespace gradwire {
std::vector<NamedTensor> state_of(exchange::Exchange& exchange, const std::string& prefix) {
  std::vector<NamedTensor> copies;
  for (const auto& [name, span] : exchange.state()) {
    copies.push_back({prefix + name, copy_of(span)});
  }
  return copies;
}

void load_state(exchange::Exchange& exchange, const std::map<std::string, torch::Tensor>& saved,
                const std::string& prefix) {
  std::vector<exchange::Exchange::SavedState> states;
  for (const auto& [name, tensor] : saved) {
    if (!name.starts_with(prefix)) continue;
    states.push_back({name.substr(prefix.size()), lend(tensor, {"load_state", name, 0})});
  }
  exchange.load_state(states);
}

namespace {

using Tensors = std::map<std::string, torch::Tensor>;

constexpr const char* kMine = "mine.";
constexpr const char* kLocal = "local.";
constexpr const char* kOuter = ".outer";
constexpr const char* kVelocity = ".outer_velocity";

std::string without(const std::string& name, std::string_view suffix) {
  return name.substr(0, name.size() - suffix.size());
}

/// Returns the checkpoint name of a LocalSgd state that is the same on all ranks; empty for others.
std::string common_name(const std::string& state) {
  if (state.ends_with(kOuter)) return without(state, kOuter);
  if (!state.ends_with(kVelocity)) return "";
  return fmt::format("{}outer_velocity.{}", checkpoint::kOptimizerPrefix,
                     without(state, kVelocity));
}

TensorPiece piece_of(const std::string& name, const torch::Tensor& tensor) {
  return {.name = name, .shape = tensor.sizes().vec(), .data = tensor.contiguous().view({-1})};
}

/// Returns the position with the same steps done and nothing in flight.
torch::Tensor at_rest(const torch::Tensor& position) {
  auto rest = position.clone();
  rest[1] = -1;
  return rest;
}

void load_mine(const std::vector<TensorPiece>& pieces, const Tensors& saved) {
  for (const auto& piece : pieces) {
    const auto found = saved.find(kMine + piece.name);
    if (found != saved.end() && found->second.numel() == piece.data.numel()) {
      piece.data.detach().copy_(found->second);
    } else if (!piece.is_state) {
      refuse(
          "checkpoint: this rank's '{}' is missing; the checkpoint is of a "
          "run without local_steps",
          piece.name);
    }
  }
}

}  // namespace

void split_local_state(LocalSgd& local, CheckpointContent& content) {
  for (const auto& piece : content.pieces) {
    content.rank_tensors.push_back({kMine + piece.name, piece.data});
  }
  std::vector<TensorPiece> common;
  for (const auto& [name, tensor] : local.state()) {
    if (const auto known = common_name(name); !known.empty()) {
      common.push_back(piece_of(known, tensor));
      common.back().is_state = name.ends_with(kVelocity);
    } else {
      content.rank_tensors.push_back({kLocal + name, tensor});
    }
  }
  for (const auto& piece : content.pieces) {
    const auto same = [&piece](const auto& other) { return other.name == piece.name; };
    const bool stepped = std::ranges::any_of(common, same);
    if (!stepped && !piece.is_state) common.push_back(piece);
  }
  content.pieces = std::move(common);
}

void load_local(CheckpointLoader& loader, LocalSgd& local, const std::vector<TensorPiece>& pieces,
                const Tensors& saved) {
  const torch::NoGradGuard no_grad;
  Tensors state;
  std::vector<TensorPiece> common;
  std::map<std::string, torch::Tensor> outer;
  for (const auto& [name, tensor] : local.state()) {
    state[name] = tensor.contiguous();
    const auto known = common_name(name);
    if (known.empty()) continue;
    common.push_back(piece_of(known, state[name]));
    common.back().is_state = name.ends_with(kVelocity);
    outer[known] = common.back().data;
  }
  for (const auto& piece : pieces) {
    if (!piece.is_state && !outer.contains(piece.name)) common.push_back(piece);
  }
  loader.load(common);
  if (loader.same_ranks()) {
    load_mine(pieces, saved);
    for (const auto& [name, tensor] : saved) {
      if (name.starts_with(kLocal)) state[name.substr(std::strlen(kLocal))] = tensor;
    }
  } else {
    for (const auto& piece : pieces) {
      if (outer.contains(piece.name)) piece.data.detach().copy_(outer.at(piece.name));
    }
    state["local_steps.position"] = at_rest(state.at("local_steps.position"));
  }
  local.load_state(state);
}

}  // namespace gradwire
