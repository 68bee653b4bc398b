// A backend of torch.distributed whose operations do nothing, with the hooks of PyTorch 2.15: what
// the flight recorder costs apart from the operation (recorder.py).
#include <chrono>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <pybind11/chrono.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Hooks.hpp>
#include <torch/extension.h>

namespace {

using Hooks = std::map<std::int64_t, c10d::CompletionHook>;

class IdleWork final : public c10d::Work {
 public:
  IdleWork(const Hooks& hooks, std::uint64_t number) : hooks_(hooks), number_(number) {}
  bool isCompleted() override { return true; }
  bool isSuccess() const override { return true; }
  std::uint64_t getSequencenumber() const override { return number_; }
  std::uint64_t getCompletionKey() const override { return number_; }
  /// Completes only here: the recorder cannot complete an operation before it has recorded it.
  bool wait(std::chrono::milliseconds) override {
    for (const auto& [id, hook] : hooks_) hook({.completionKey = number_, .duration_ms = 0.f});
    return true;
  }

 private:
  const Hooks& hooks_;
  std::uint64_t number_;
};

class IdleBackend final : public c10d::Backend {
 public:
  using Backend::Backend;
  const std::string getBackendName() const override { return "idle"; }
  bool supportsCompletionHooks() const override { return true; }
  void registerCompletionHook(std::int64_t id, c10d::CompletionHook hook) override {
    hooks_[id] = std::move(hook);
  }
  void unregisterCompletionHook(std::int64_t id) override { hooks_.erase(id); }
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>&,
                                           const c10d::AllreduceOptions&) override {
    return c10::make_intrusive<IdleWork>(hooks_, ++number_);
  }

 private:
  Hooks hooks_;
  std::uint64_t number_ = 0;
};

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  module.def("make",
             [](const c10::intrusive_ptr<c10d::Store>&, int rank, int size,
                const std::chrono::milliseconds&) -> c10::intrusive_ptr<c10d::Backend> {
               return c10::make_intrusive<IdleBackend>(rank, size);
             });
}
