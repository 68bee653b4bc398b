#include "gradwire/train/pipeline/stage_edges.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <numeric>
#include <utility>

namespace gradwire {
namespace {

std::int64_t elements_of(const BoundaryShape& shape, std::int64_t samples) {
  return std::accumulate(shape.sizes.begin(), shape.sizes.end(), samples, std::multiplies());
}

/// The stage of each layer.
std::vector<pipeline::Stage> stages_of(const std::vector<std::size_t>& cut) {
  std::vector<pipeline::Stage> stages;
  for (std::size_t s = 0; s < cut.size(); ++s) {
    stages.insert(stages.end(), cut[s], static_cast<pipeline::Stage>(s));
  }
  return stages;
}

}  // namespace

torch::Tensor BoundaryShape::empty(std::int64_t samples) const {
  std::vector<std::int64_t> all{samples};
  all.insert(all.end(), sizes.begin(), sizes.end());
  return torch::empty(all, type);
}

StageEdges::StageEdges(const Layers& layers, const std::vector<std::size_t>& cut) {
  std::map<StagePair, std::vector<StageValue>> values;
  for (pipeline::Stage s = 1; s < static_cast<pipeline::Stage>(cut.size()); ++s) {
    values[{s - 1, s}].push_back(kPassing);
  }
  const auto stages = stages_of(cut);
  StageValue value = 0;
  for (const Layers::Skip& skip : layers.skips()) {
    targets_.push_back(skip.to);
    const StagePair edge{stages[skip.from], stages[skip.to]};
    if (edge.first != edge.second) values[edge].push_back(value);
    ++value;
  }
  for (auto& [edge, passing] : values) edges_.push_back({edge, std::move(passing)});
}

std::vector<StageEdge> StageEdges::into(pipeline::Stage stage) const {
  std::vector<StageEdge> found;
  std::ranges::copy_if(edges_, std::back_inserter(found),
                       [&](const StageEdge& edge) { return edge.stages.second == stage; });
  return found;
}

std::vector<StageEdge> StageEdges::out_of(pipeline::Stage stage) const {
  std::vector<StageEdge> found;
  std::ranges::copy_if(edges_, std::back_inserter(found),
                       [&](const StageEdge& edge) { return edge.stages.first == stage; });
  return found;
}

std::vector<StageValue> StageEdges::outputs_of(pipeline::Stage stage) const {
  std::vector<StageValue> skipped;
  for (const StageEdge& edge : out_of(stage)) {
    std::ranges::copy_if(edge.values, std::back_inserter(skipped),
                         [](StageValue value) { return value != kPassing; });
  }
  std::ranges::stable_sort(skipped, std::greater(), [this](StageValue value) {
    return targets_[static_cast<std::size_t>(value)];
  });
  skipped.push_back(kPassing);  // The next layer takes it.
  return skipped;
}

std::vector<pipeline::Edge> StageEdges::skips() const {
  std::vector<pipeline::Edge> edges;
  for (const auto& [stages, values] : edges_) {
    if (stages.second > stages.first + 1) edges.push_back({stages.first, stages.second});
  }
  return edges;
}

torch::Tensor packed(const std::vector<torch::Tensor>& tensors) {
  if (tensors.size() == 1) return tensors.front().contiguous();
  std::vector<torch::Tensor> flat;
  for (const torch::Tensor& tensor : tensors) flat.push_back(tensor.reshape({-1}));
  return torch::cat(flat);
}

std::vector<torch::Tensor> unpacked(const torch::Tensor& tensor,
                                    const std::vector<BoundaryShape>& shapes,
                                    std::int64_t samples) {
  if (shapes.size() == 1) return {tensor};
  std::vector<torch::Tensor> tensors;
  std::int64_t begin = 0;
  for (const BoundaryShape& shape : shapes) {
    const std::int64_t count = elements_of(shape, samples);
    std::vector<std::int64_t> sizes{samples};
    sizes.insert(sizes.end(), shape.sizes.begin(), shape.sizes.end());
    tensors.push_back(tensor.narrow(0, begin, count).view(sizes));
    begin += count;
  }
  return tensors;
}

torch::Tensor empty_packed(const std::vector<BoundaryShape>& shapes, std::int64_t samples) {
  if (shapes.size() == 1) return shapes.front().empty(samples);
  std::int64_t elements = 0;
  for (const BoundaryShape& shape : shapes) elements += elements_of(shape, samples);
  return torch::empty({elements}, shapes.front().type);
}

}  // namespace gradwire
