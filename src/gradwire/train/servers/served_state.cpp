#include "gradwire/train/servers/served_state.h"

#include "gradwire/torch/tensor_span.h"

namespace gradwire {
namespace {

TensorPiece piece_of(const NamedTensor& whole, bool common = true) {
  const torch::Tensor& tensor = whole.tensor;
  return {whole.name, tensor.sizes().vec(), 0, tensor.detach().view({-1}), common};
}

}  // namespace

void ServedState::load_values() {
  const ProcessGroup& group = host_.group();
  if (group->getRank() == 0) {
    for (std::size_t unit = 0; unit < shards_.units().size(); ++unit) {
      exchange_.load(unit, lend(shards_.units()[unit].flat(), host_.errors().name("parameters")));
    }
  }
  sum_over_ranks(*group, {1});
}

std::vector<int> ServedState::servers_of_worker(bool loading) const {
  const int workers = host_.group()->getSize();
  const bool shares = loading || tensors_.has_common_steps;
  std::vector<int> servers;
  for (int server = 0; server < tensors_.placement.servers; ++server) {
    if (!shares || server % workers == host_.group()->getRank()) servers.push_back(server);
  }
  return servers;
}

std::vector<TensorPiece> ServedState::pieces(bool make_states) {
  host_.finish();
  std::vector<TensorPiece> found;
  for (const NamedTensor& parameter : tensors_.parameters) found.push_back(piece_of(parameter));
  for (const NamedTensor& parameter : tensors_.frozen) found.push_back(piece_of(parameter));
  for (const NamedTensor& buffer : host_.buffers()) found.push_back(piece_of(buffer, false));
  copies_.clear();
  for (const int server : servers_of_worker(make_states)) {
    const auto [copy, is_new] = copies_.try_emplace(
        server, tensors_.parameters, tensors_.plan,
        TorchShardsOptions{
            .server = server, .placement = tensors_.placement, .optimizer = tensors_.optimizer});
    if (!make_states) exchange_.fetch_states(server, copy->second.states());
    for (TensorPiece& state : copy->second.pieces()) found.push_back(std::move(state));
  }
  return found;
}

void ServedState::loaded() {
  for (auto& [server, copy] : copies_) exchange_.load_states(server, copy.states());
  copies_.clear();
  load_values();
  host_.invalidate();
}

}  // namespace gradwire
