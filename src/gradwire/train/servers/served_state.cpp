#include "gradwire/train/servers/served_state.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "gradwire/base/refuse.h"
#include "gradwire/torch/tensor_span.h"

namespace gradwire {
namespace {

TensorPiece piece_of(const NamedTensor& whole, bool common = true) {
  const torch::Tensor& tensor = whole.tensor;
  return {whole.name, tensor.sizes().vec(), 0, tensor.detach().view({-1}), common};
}

using Versions = std::vector<std::vector<std::int64_t>>;

/// Returns the versions of `units` units, of a run that saved its servers' `saved` ones, or that
/// had other units, or no servers and `step` steps.
std::vector<std::int64_t> resumed_versions(const Versions& saved, std::int64_t step,
                                           std::size_t units) {
  std::int64_t most = saved.empty() ? step : 0;
  bool are_alike = !saved.empty();
  for (const std::vector<std::int64_t>& server : saved) {
    for (const std::int64_t version : server) most = std::max(most, version);
    are_alike = are_alike && server.size() == units;
  }
  std::vector<std::int64_t> versions(units, are_alike ? 0 : most);
  for (std::size_t unit = 0; are_alike && unit < units; ++unit) {
    for (const auto& server : saved) versions[unit] = std::max(versions[unit], server[unit]);
  }
  return versions;
}

Versions read_versions(const std::string& progress) {
  try {
    return nlohmann::json::parse(progress).value("versions", Versions());
  } catch (const nlohmann::json::exception& error) {
    refuse("the checkpoint's versions of servers are damaged ({}): use another checkpoint",
           error.what());
  }
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

std::string ServedState::progress() {
  return nlohmann::json{{"versions", exchange_.versions()}}.dump();
}

void ServedState::resume_at(std::int64_t step, const std::string& progress) {
  const auto versions = resumed_versions(read_versions(progress), step, exchange_.slices());
  const ProcessGroup& group = host_.group();
  if (group->getRank() == 0) exchange_.begin_at(versions);
  sum_over_ranks(*group, {1});
  exchange_.meet();
  std::vector<LentSpan> values;
  for (const FlatUnit& unit : shards_.units()) {
    values.push_back(lend(unit.flat(), host_.errors().name("parameters")));
  }
  exchange_.pull(values);
}

}  // namespace gradwire
