#include "gradwire/train/parallel/parallel_module.h"

#include <algorithm>

#include "gradwire/base/refuse.h"
#include "gradwire/train/parallel/box_exchange.h"

namespace gradwire {

torch::Tensor ParallelModule::register_part(const std::string& name, const torch::Tensor& whole,
                                            const Division& division) {
  const auto own = division.boxes.begin() + rank();
  boxes_[name] = {division.shape, *own, std::find(division.boxes.begin(), own, *own) != own};
  return register_parameter(name,
                            view_of_box(whole.detach(), *own).clone(at::MemoryFormat::Contiguous));
}

void ParallelModule::record_sole_owner(const std::string& name, const torch::Tensor& whole) {
  const Shape shape = whole.sizes().vec();
  boxes_[name] = {shape, whole_box(shape), false};
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

std::int64_t equal_part(std::string_view what, std::int64_t count, const ProcessGroup& group) {
  const int ranks = group->getSize();
  if (count % ranks == 0) return count / ranks;
  refuse("{} {} cannot be divided equally over {} ranks; choose a number of ranks that divides it",
         count, what, ranks);
}

}  // namespace gradwire
