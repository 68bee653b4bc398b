// Step traces of a Python training loop. python/gradwire/tracing.py is the public interface.
#include <chrono>
#include <memory>
#include <string>

#include <torch/csrc/utils/pybind.h>
#include <unistd.h>

#include "gradwire/host/group.h"
#include "gradwire/torch/codec_hook.h"
#include "gradwire/torch/process_group.h"
#include "gradwire/trace/trace_session.h"

namespace gradwire::python {

void bind_trace(py::module_& module);

namespace {

TraceKind kind_named(const std::string& name) {
  for (const TraceKind kind : {TraceKind::step, TraceKind::data, TraceKind::forward,
                               TraceKind::backward, TraceKind::optimizer, TraceKind::wait}) {
    if (name_of(kind) == name) return kind;
  }
  return TraceKind::other;
}

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "unknown";
}

std::unique_ptr<TracePeers> peers_of(const ProcessGroup& group) {
  if (auto communicator = communicator_of(*group)) return trace_peers(std::move(communicator));
  return group_trace_peers(group);
}

/// A TraceSession with its clock and recorder; hooks record on it too.
class StepTrace {
 public:
  StepTrace(const ProcessGroup& group, const std::string& file)
      : session_({.file = file, .host = host_name()}, peers_of(group), clock_) {}

  TraceRecorder& recorder() { return *session_.recorder(); }
  Time now() const { return clock_.now(); }

  void record(const std::string& name, Time begin, std::size_t bytes) {
    recorder().record(kind_named(name), name, recorder().step(), begin, clock_.now(), bytes);
  }

  std::optional<std::string> finish() {
    const auto summary = session_.finish();
    if (!summary) return std::nullopt;
    return format_trace_summary(*summary);
  }

 private:
  SteadyClock clock_;
  TraceSession session_;
};

}  // namespace

void bind_trace(py::module_& module) {
  using Unlocked = py::call_guard<py::gil_scoped_release>;
  py::class_<StepTrace, std::shared_ptr<StepTrace>>(module, "StepTrace")
      .def("now", [](const StepTrace& t) { return t.now().time_since_epoch().count(); })
      .def("begin_step", [](StepTrace& t, std::int64_t n) { t.recorder().begin_step(n); })
      .def("record", [](StepTrace& t, const std::string& name, std::int64_t begin,
                        std::size_t bytes) { t.record(name, Time(Duration(begin)), bytes); })
      .def("follow",
           [](const std::shared_ptr<StepTrace>& t, CodecHook& hook) {
             hook.trace(std::shared_ptr<TraceRecorder>(t, &t->recorder()));
           })
      .def("finish", &StepTrace::finish, Unlocked());
  module.def(
      "trace",
      [](const ProcessGroup& group, const std::string& file) {
        return std::make_shared<StepTrace>(group, file);
      },
      py::arg("group").none(false), py::arg("file"), Unlocked());
}

}  // namespace gradwire::python
