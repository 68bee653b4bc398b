#include "gradwire/train/parallel/parallel_module.h"

#include <algorithm>

#include "gradwire/base/refuse.h"
#include "gradwire/host/named_tensor.h"
#include "gradwire/train/parallel/box_exchange.h"

namespace gradwire {

torch::Tensor ParallelModule::register_part(const std::string& name, const torch::Tensor& whole,
                                            const Division& division, const Shape& shape) {
  const auto own = division.boxes.begin() + rank();
  const bool is_replica = std::find(division.boxes.begin(), own, *own) != own;
  if (ranks() > 1) boxes_[name] = {whole.sizes().vec(), {division.shape, *own}, is_replica};
  const torch::Tensor part = view_of_box(whole.detach().contiguous().view(division.shape), *own)
                                 .clone(at::MemoryFormat::Contiguous);
  return register_parameter(name, shape.empty() ? part : part.view(shape));
}

void ParallelModule::record_sole_owner(const std::string& name, const torch::Tensor& whole) {
  const Shape shape = whole.sizes().vec();
  if (ranks() > 1) boxes_[name] = {shape, whole_part(shape), false};
}

std::map<std::string, ParameterBox> parameter_boxes(const torch::nn::Module& module) {
  std::map<std::string, ParameterBox> boxes;
  const auto add = [&](const std::string& path, const torch::nn::Module& child) {
    const auto* const parallel = dynamic_cast<const ParallelModule*>(&child);
    if (!parallel) return;
    for (const auto& [name, box] : parallel->own_boxes()) {
      boxes[path.empty() ? name : path + "." + name] = box;
    }
  };
  module.apply(add);
  return boxes;
}

std::set<std::string> divided_parameters(const torch::nn::Module& module) {
  std::set<std::string> names;
  for (const auto& [name, box] : parameter_boxes(module)) names.insert(name);
  return names;
}

double whole_elements(const torch::nn::Module& module) {
  const auto boxes = parameter_boxes(module);
  double elements = 0;
  for (const auto& [name, tensor] : all_parameters(module)) {
    const auto box = boxes.find(name);
    elements += static_cast<double>(box == boxes.end() ? tensor.numel()
                                                       : whole_box(box->second.shape).elements());
  }
  return elements;
}

std::int64_t equal_part(std::string_view what, std::int64_t count, const ProcessGroup& group) {
  const int ranks = group ? group->getSize() : 1;
  if (count % ranks == 0) return count / ranks;
  refuse("{} {} cannot be divided equally over {} ranks; choose a number of ranks that divides it",
         count, what, ranks);
}

}  // namespace gradwire
