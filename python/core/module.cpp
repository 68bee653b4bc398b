// gradwire._core: the Python bindings of the C++ library. python/gradwire is the public interface.
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <torch/csrc/utils/pybind.h>
#include <unistd.h>
// Included before anything with a timeout, which it converts.
#include <pybind11/chrono.h>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include "gradwire/checkpoint/checkpoint_folder.h"
#include "gradwire/comm/devices/device_communicators.h"
#include "gradwire/host/group.h"
#include "gradwire/schedule/catalogue.h"
#include "gradwire/topology/machine.h"
#include "gradwire/torch/codec_hook.h"
#include "gradwire/torch/hybrid_process_group.h"
#include "gradwire/torch/init.h"

namespace gradwire::python {

void bind_checkpoint(py::module_& module);        // checkpoint.cpp
void bind_federated(py::module_& module);         // federated.cpp
void bind_federated_client(py::module_& module);  // federated_client.cpp
void bind_host(py::module_& module);              // host.cpp
void bind_pipeline(py::module_& module);          // pipeline.cpp
void bind_served(py::module_& module);            // served.cpp
void bind_embedding(py::module_& module);         // served_embedding.cpp
void bind_store(py::module_& module);             // store.cpp
void bind_trace(py::module_& module);             // trace.cpp

namespace {

/// Runs `action` without the GIL: closing a group waits for callbacks, which may need it.
void unlocked(const std::function<void()>& action) {
  if (!Py_IsInitialized() || !PyGILState_Check()) return action();
  const py::gil_scoped_release release;
  action();
}

/// The exception that is being handled, as "after an exception: ValueError: ..."; "" if none is.
std::string handled_exception() {
  if (!Py_IsInitialized()) return "";
  const py::gil_scoped_acquire gil;
  PyObject* type = nullptr;
  PyObject* value = nullptr;
  PyObject* trace = nullptr;
  PyErr_GetExcInfo(&type, &value, &trace);
  std::string text;
  if (value != nullptr && value != Py_None) {
    const auto name = py::type::handle_of(value).attr("__name__").cast<std::string>();
    text = fmt::format("after an exception: {}: {}", name, py::str(value).cast<std::string>());
  }
  Py_XDECREF(type);
  Py_XDECREF(value);
  Py_XDECREF(trace);
  return text;
}

class PythonBackend;

/// The groups of this process, owned by the module and by the groups. They are not found through
/// Python's objects, which are destroyed when torch.distributed takes a group over. Thread-safe.
class LiveGroups {
 public:
  void add(const c10::intrusive_ptr<PythonBackend>& group);
  /// Returns all and forgets them; none in a forked child, which must not close its copies.
  std::vector<c10::intrusive_ptr<PythonBackend>> take();

 private:
  std::mutex mutex_;
  std::vector<c10::weak_intrusive_ptr<PythonBackend>> groups_;
  pid_t process_ = 0;  ///< Their process.
};

/// Closes the hooks that use it when it closes, and is destroyed without the GIL.
class PythonBackend final : public HybridProcessGroup {
 public:
  PythonBackend(std::shared_ptr<Communicator> communicator,
                c10::intrusive_ptr<GroupOptions> options, std::shared_ptr<LiveGroups> live)
      : HybridProcessGroup(std::move(communicator), std::move(options)), live_(std::move(live)) {}

  /// Creates a backend and adds it to `live`.
  static c10::intrusive_ptr<PythonBackend> make(std::shared_ptr<Communicator> communicator,
                                                c10::intrusive_ptr<GroupOptions> options,
                                                const std::shared_ptr<LiveGroups>& live) {
    auto made =
        c10::make_intrusive<PythonBackend>(std::move(communicator), std::move(options), live);
    live->add(made);
    return made;
  }

  ~PythonBackend() override {
    unlocked([this] { close(); });
  }

  /// If called while an exception is handled (`finally: destroy_process_group()`), this rank has
  /// failed and may never join the other ranks' next operations. It tells them at once.
  void shutdown() override {
    if (const std::string failure = handled_exception(); !failure.empty()) leave_at_once(failure);
    close();
  }

  c10::intrusive_ptr<GroupOptions> options() {
    auto* options = dynamic_cast<GroupOptions*>(getBackendOptions().get());
    return c10::intrusive_ptr<GroupOptions>::reclaim_copy(options);
  }

  std::shared_ptr<CodecHook> add_codec_hook(c10d::Reducer& reducer, const std::string& codec,
                                            int warmup_steps, std::uint64_t seed) {
    const std::lock_guard lock(mutex_);
    auto hook = std::make_shared<CodecHook>(
        communicator_of_hooks(),
        exchange::ExchangeOptions{.codec = codec, .warmup_steps = warmup_steps, .seed = seed},
        hybrid());
    reducer.register_comm_hook(as_ddp_hook(hook));
    std::erase_if(hooks_, [](const auto& each) { return each.expired(); });
    hooks_.push_back(hook);
    return hook;
  }

 protected:
  c10::intrusive_ptr<Backend> make_split(std::shared_ptr<Communicator> communicator,
                                         c10::intrusive_ptr<GroupOptions> options) const override {
    return make(std::move(communicator), std::move(options), live_);
  }

 private:
  /// The ranks between which gradients are coded.
  std::shared_ptr<Communicator> communicator_of_hooks() const {
    if (!hybrid()) return communicator();
    if (between()) return between()->communicator();
    return communicator()->subgroup(std::vector<Rank>{rank_});
  }

  void close() {
    std::vector<std::weak_ptr<CodecHook>> hooks;
    {
      const std::lock_guard lock(mutex_);
      hooks.swap(hooks_);
    }
    for (const auto& each : hooks) {
      if (const auto hook = each.lock()) hook->close();
    }
    HybridProcessGroup::shutdown();
  }

  std::shared_ptr<LiveGroups> live_;
  std::mutex mutex_;
  /// Weak, because a model's error-feedback residuals are as large as the model: they must be freed
  /// with it.
  std::vector<std::weak_ptr<CodecHook>> hooks_;
};

void LiveGroups::add(const c10::intrusive_ptr<PythonBackend>& group) {
  const std::lock_guard lock(mutex_);
  if (process_ != ::getpid()) groups_.clear();
  process_ = ::getpid();
  std::erase_if(groups_, [](const auto& each) { return each.expired(); });
  groups_.emplace_back(group);
}

std::vector<c10::intrusive_ptr<PythonBackend>> LiveGroups::take() {
  const std::lock_guard lock(mutex_);
  std::vector<c10::intrusive_ptr<PythonBackend>> alive;
  if (process_ != ::getpid()) return alive;
  for (const auto& each : std::exchange(groups_, {})) {
    if (auto group = each.lock()) alive.push_back(std::move(group));
  }
  return alive;
}

/// Called before Python exits, so that peers learn that this rank has left and none of our threads
/// outlives Python. `failure`: "after an exception: ..." if an uncaught one ends the process.
void close_all(LiveGroups& live, const std::string& failure) {
  for (const auto& group : live.take()) {
    if (!failure.empty()) group->leave_at_once(failure);
    group->shutdown();
  }
}

template <class T, class... Bases>
using IntrusiveClass = py::class_<T, Bases..., c10::intrusive_ptr<T>>;

/// `first`: the process has no other group yet; this call logs the warnings of the job.
c10::intrusive_ptr<PythonBackend> create(const c10d::DistributedBackendOptions& group,
                                         const c10::intrusive_ptr<GroupOptions>& given, bool first,
                                         const std::shared_ptr<LiveGroups>& live) {
  auto options =
      given ? c10::make_intrusive<GroupOptions>(*given) : c10::make_intrusive<GroupOptions>();
  options->timeout = std::chrono::duration_cast<std::chrono::milliseconds>(group.timeout);
  options->group_name = group.group_id;
  options->global_ranks_in_group.clear();
  for (const auto rank : group.global_ranks_in_group) {
    options->global_ranks_in_group.push_back(static_cast<std::uint64_t>(rank));
  }
  if (first) warn_of_open_store(*group.store, group.group_rank, group.group_size, *options);
  auto communicator = connect_group(group.store, group.group_rank, group.group_size, *options);
  return PythonBackend::make(std::move(communicator), std::move(options), live);
}

/// Groups for threads of this process, one for each device. `between`: a group of gradwire's, or
/// none.
std::vector<ProcessGroup> device_groups(const std::optional<ProcessGroup>& between, int devices,
                                        const std::shared_ptr<LiveGroups>& live) {
  const auto communicator = between ? communicator_of(**between) : nullptr;
  if (between && !communicator) {
    throw Exception(ErrorKind::unsupported,
                    "several devices in one process need a process group of backend gradwire "
                    "between processes");
  }
  if (between) refuse_inside(**between, "several devices in one process");
  std::vector<ProcessGroup> groups;
  for (auto& own : device_communicators(communicator, devices)) {
    groups.push_back(process_group_of(
        PythonBackend::make(std::move(own), c10::make_intrusive<GroupOptions>(), live)));
  }
  return groups;
}

/// Errors of the caller become ValueError (FileNotFoundError if there is no checkpoint), all others
/// RuntimeError, which is pybind11's default.
void translate_errors() {
  py::register_exception_translator([](std::exception_ptr pointer) {
    try {
      if (pointer) std::rethrow_exception(pointer);
    } catch (const checkpoint::NoCheckpoint& error) {
      PyErr_SetString(PyExc_FileNotFoundError, error.what());
    } catch (const Exception& error) {
      const bool value = error.kind() == ErrorKind::invalid_argument;
      PyErr_SetString(value ? PyExc_ValueError : PyExc_RuntimeError, error.what());
    }
  });
}

void bind_options(py::module_& module) {
  IntrusiveClass<GroupOptions, c10d::Backend::Options>(module, "Options")
      .def(py::init<>())
      .def_readwrite("interface", &GroupOptions::interface)
      .def_readwrite("secret", &GroupOptions::secret)
      .def_readwrite("port", &GroupOptions::port)
      .def_readwrite("shared_memory", &GroupOptions::shared_memory)
      .def_readwrite("encryption", &GroupOptions::encryption)
      .def_readwrite("codec", &GroupOptions::codec)
      .def_readwrite("inside", &GroupOptions::inside)
      .def_property(
          "engine", [](const GroupOptions& o) { return o.communicator.engine; },
          [](GroupOptions& o, const std::string& value) { o.communicator.engine = value; })
      .def_property(
          "algorithm", [](const GroupOptions& o) { return o.communicator.algorithm; },
          [](GroupOptions& o, const std::string& value) { o.communicator.algorithm = value; })
      .def_property(
          "topology", [](const GroupOptions& o) { return o.communicator.topology; },
          [](GroupOptions& o, const std::string& value) { o.communicator.topology = value; })
      .def_property(
          "dead_peer_timeout",
          [](const GroupOptions& o) { return o.communicator.dead_peer_timeout; },
          [](GroupOptions& o, std::chrono::nanoseconds t) { o.communicator.dead_peer_timeout = t; })
      .def("__copy__", [](const GroupOptions& o) { return c10::make_intrusive<GroupOptions>(o); })
      .def("__deepcopy__", [](const GroupOptions& o, const py::dict&) {
        return c10::make_intrusive<GroupOptions>(o);
      });
}

void bind_backend(py::module_& module) {
  using Unlocked = py::call_guard<py::gil_scoped_release>;
  using BackendPointer = c10::intrusive_ptr<c10d::Backend>;
  py::class_<HostGrid>(module, "HostGrid")
      .def_property_readonly("inside", [](const HostGrid& grid) { return grid.inside(); })
      .def_readonly("hosts", &HostGrid::hosts);
  module.def("machine_identity", &topology::machine_identity);
  IntrusiveClass<ProcessGroupGradwire, c10d::Backend>(module, "ProcessGroupGradwire");
  IntrusiveClass<PythonBackend, ProcessGroupGradwire>(module, "GradwireBackend")
      .def("shutdown", &PythonBackend::shutdown, Unlocked())
      .def("abort", &PythonBackend::abort, Unlocked())
      .def("perform_nocolor_split", [](PythonBackend&, const py::object&) {})
      .def(
          "host_grid",
          [](const PythonBackend& backend, const std::string& machine) {
            return host_grid(*backend.communicator(), machine);
          },
          py::arg("machine"), Unlocked())
      .def(
          "use_inside",
          [](PythonBackend& backend, const HostGrid& grid, const BackendPointer& reductions,
             const BackendPointer& gathers) {
            backend.use_inside(grid, {reductions, gathers});
          },
          py::arg("grid"), py::arg("reductions") = py::none(), py::arg("gathers") = py::none(),
          Unlocked())
      .def("add_codec_hook", &PythonBackend::add_codec_hook, py::arg("reducer"), py::arg("codec"),
           py::arg("warmup_steps"), py::arg("seed"), Unlocked())
      .def("algorithm_for",
           [](const PythonBackend& backend, const std::string& collective, std::size_t bytes) {
             const auto parsed = schedule::collective_named(collective);
             if (!parsed) throw py::value_error("no collective is called '" + collective + "'");
             return backend.communicator()->algorithm_for(*parsed, bytes);
           })
      .def_property_readonly("options", [](PythonBackend& backend) { return backend.options(); })
      .def_property_readonly("bytes_sent", py::cpp_function(
                                               [](const PythonBackend& backend) {
                                                 return backend.communicator()->bytes_sent();
                                               },
                                               Unlocked()));
  const auto live = std::make_shared<LiveGroups>();
  module.def(
      "close_all", [live](const std::string& failure) { close_all(*live, failure); },
      py::arg("failure"), Unlocked());
  module.def(
      "create",
      [live](const c10d::DistributedBackendOptions& group,
             const c10::intrusive_ptr<GroupOptions>& options,
             bool first) { return create(group, options, first, live); },
      py::arg("group"), py::arg("options").none(true), py::arg("first"), Unlocked());
  module.def(
      "device_groups",
      [live](const std::optional<ProcessGroup>& between, int devices) {
        return device_groups(between, devices, live);
      },
      py::arg("between"), py::arg("devices"), Unlocked());
  module.def(
      "abort_group",
      [](const ProcessGroup& group, const std::string& reason) { abort_group(*group, reason); },
      py::arg("group"), py::arg("reason"), Unlocked());
}

void bind_hook(py::module_& module) {
  py::class_<CodecHook, std::shared_ptr<CodecHook>>(module, "CodecHook")
      .def("describe", &CodecHook::describe)
      .def("state", &CodecHook::state)
      .def("load_state", &CodecHook::load_state);
}

}  // namespace
}  // namespace gradwire::python

PYBIND11_MODULE(_core, module) {
  gradwire::initialize_vector_math();
  py::module_::import("torch.distributed");  // Defines the base classes of ours.
  gradwire::python::translate_errors();
  gradwire::python::bind_options(module);
  gradwire::python::bind_backend(module);
  gradwire::python::bind_hook(module);
  gradwire::python::bind_checkpoint(module);
  gradwire::python::bind_federated(module);
  gradwire::python::bind_federated_client(module);
  gradwire::python::bind_host(module);
  gradwire::python::bind_pipeline(module);
  gradwire::python::bind_served(module);
  gradwire::python::bind_embedding(module);
  gradwire::python::bind_store(module);
  gradwire::python::bind_trace(module);
}
