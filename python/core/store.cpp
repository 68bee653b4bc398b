// The job's own store as torch.distributed's rendezvous yields it.
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <torch/csrc/utils/pybind.h>
#include <unistd.h>
// Included before anything with a timeout, which it converts.
#include <pybind11/chrono.h>
#include <pybind11/stl.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "gradwire/bootstrap/job.h"
#include "gradwire/torch/gradwire_store.h"

namespace gradwire::python {
namespace {

using Variables = std::unordered_map<std::string, std::string>;
using StorePointer = c10::intrusive_ptr<c10d::Store>;

/// The stores of this process. A second rendezvous at the same address, such as RPC besides a
/// process group, gets the same store. A forked child does not own its copies.
struct LiveStores {
  std::mutex mutex;
  std::vector<c10::weak_intrusive_ptr<GradwireStore>> stores;
  pid_t process = 0;
};

LiveStores& live_stores() {
  static auto* const live = new LiveStores;  // Stores may outlive static objects.
  return *live;
}

c10::intrusive_ptr<GradwireStore> find_store(LiveStores& live, const bootstrap::Job& job) {
  const std::lock_guard lock(live.mutex);
  if (live.process != ::getpid()) live.stores.clear();
  live.process = ::getpid();
  std::erase_if(live.stores, [](const auto& each) { return each.expired(); });
  for (const auto& each : live.stores) {
    auto store = each.lock();
    if (store && store->is_of(job)) return store;
  }
  return nullptr;
}

StorePointer store_of(const bootstrap::Job& job, std::chrono::milliseconds timeout) {
  if (job.world_size == 1) return c10::make_intrusive<c10d::HashStore>();
  LiveStores& live = live_stores();
  if (auto store = find_store(live, job)) return store;
  // Not under the lock: ranks that are threads of one process wait for each other here.
  auto store = GradwireStore::open(job, timeout);
  const std::lock_guard lock(live.mutex);
  live.stores.emplace_back(store);
  return store;
}

struct Opened {
  StorePointer store;
  Rank rank = 0;
  int world_size = 1;
};

/// `variables` take precedence over those of the environment.
Opened open_store(const Variables& variables, std::chrono::milliseconds timeout) {
  const bootstrap::Environment own = bootstrap::process_environment();
  const bootstrap::Job job =
      bootstrap::Job::from_environment([&](std::string_view name) -> std::optional<std::string> {
        const auto given = variables.find(std::string(name));
        return given == variables.end() ? own(name) : given->second;
      });
  return {store_of(job, timeout), job.rank, job.world_size};
}

/// Called before Python exits, so that none of our threads outlives it. `failed`: an uncaught
/// exception ends the process, which then does not wait for the other ranks.
void close_stores(bool failed) {
  LiveStores& live = live_stores();
  std::vector<c10::weak_intrusive_ptr<GradwireStore>> stores;
  {
    const std::lock_guard lock(live.mutex);
    if (live.process == ::getpid()) stores.swap(live.stores);
  }
  for (const auto& each : stores) {
    if (const auto store = each.lock()) store->close(failed);
  }
}

}  // namespace

void bind_store(py::module_& module) {
  using Unlocked = py::call_guard<py::gil_scoped_release>;
  py::class_<GradwireStore, c10d::Store, c10::intrusive_ptr<GradwireStore>>(module, "GradwireStore")
      .def_property_readonly("host", &GradwireStore::host)
      .def_property_readonly("port", &GradwireStore::port);
  module.def(
      "open_store",
      [](const Variables& variables, std::chrono::milliseconds timeout) {
        Opened opened;
        {
          const py::gil_scoped_release release;
          opened = open_store(variables, timeout);
        }
        return py::make_tuple(std::move(opened.store), opened.rank, opened.world_size);
      },
      py::arg("variables"), py::arg("timeout"));
  module.def("close_stores", &close_stores, py::arg("failed"), Unlocked());
}

}  // namespace gradwire::python
