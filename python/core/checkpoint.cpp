// Checkpoints as the C++ library reads them, checks included. python/gradwire/checkpoint.py is the
// public interface.
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <torch/csrc/utils/pybind.h>

#include "gradwire/base/refuse.h"
#include "gradwire/checkpoint/checkpoint_folder.h"
#include "gradwire/checkpoint/checkpoint_reader.h"
#include "gradwire/checkpoint/consolidate.h"
#include "gradwire/torch/safetensors_types.h"

namespace gradwire::python {

void bind_checkpoint(py::module_& module);

namespace {

/// A verified checkpoint, whose tensors are read one at a time.
class VerifiedCheckpoint {
 public:
  explicit VerifiedCheckpoint(const std::string& path) : reader_(path) {
    reader_.verify();
    for (const auto& tensor : reader_.manifest().tensors) by_name_[tensor.name] = &tensor;
  }

  /// The model's tensors, or those of its optimizer, in the order of the module.
  std::vector<std::string> names(bool optimizer) const {
    std::vector<std::string> names;
    for (const auto& tensor : reader_.manifest().tensors) names.push_back(tensor.name);
    const auto states = checkpoint::optimizer_states(names);
    std::erase_if(names, [&](const auto& name) { return states.contains(name) != optimizer; });
    return names;
  }

  at::Tensor read(const std::string& name) const {
    const auto found = by_name_.find(name);
    if (found == by_name_.end()) refuse("the checkpoint has no tensor '" + name + "'");
    auto tensor = torch::empty(found->second->shape, safetensors_type(found->second->type));
    reader_.read(*found->second, 0, bytes_of(tensor));
    return tensor;
  }

 private:
  checkpoint::CheckpointReader reader_;
  std::map<std::string, const checkpoint::ManifestTensor*> by_name_;
};

std::string checked_manifest_text(const std::string& path) {
  auto text = checkpoint::manifest_text_of(path);
  checkpoint::parse_manifest(text, std::filesystem::path(path) / checkpoint::kManifestName);
  return text;
}

}  // namespace

void bind_checkpoint(py::module_& module) {
  using Unlocked = py::call_guard<py::gil_scoped_release>;
  module.def(
      "find_checkpoint",
      [](const std::string& path) { return checkpoint::find_checkpoint(path).string(); },
      py::arg("path"), Unlocked());
  module.def("manifest_text", &checked_manifest_text, py::arg("path"), Unlocked());
  py::class_<VerifiedCheckpoint, std::shared_ptr<VerifiedCheckpoint>>(module, "VerifiedCheckpoint")
      .def(py::init<const std::string&>(), py::arg("path"), Unlocked())
      .def("names", &VerifiedCheckpoint::names, py::arg("optimizer"))
      .def("read", &VerifiedCheckpoint::read, py::arg("name"), Unlocked());
}

}  // namespace gradwire::python
