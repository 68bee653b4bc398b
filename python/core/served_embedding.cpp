// Embedding tables with rows on servers. python/gradwire/served_embedding.py is the public
// interface.
#include "gradwire/host/servers/served_embedding.h"

#include <memory>
#include <string>

#include <torch/csrc/utils/pybind.h>

namespace gradwire::python {

void bind_embedding(py::module_& module);

namespace {

struct HasServed {};

/// Returns null on a server rank, when all workers have left.
std::unique_ptr<ServedEmbedding> open_embedding(const ProcessGroup& group,
                                                const ServedEmbeddingOptions& options) {
  try {
    return std::make_unique<ServedEmbedding>(group, options, [] { throw HasServed(); });
  } catch (const HasServed&) {
    return nullptr;
  }
}

/// Without the GIL: the table waits for the server beside it.
struct FreedUnlocked {
  void operator()(ServedEmbedding* table) const {
    const py::gil_scoped_release release;
    delete table;
  }
};

py::dict report_of_table(ServedEmbedding& table) {
  using namespace py::literals;
  ServedEmbeddingReport report;
  {
    const py::gil_scoped_release release;
    report = table.report();
  }
  return py::dict("made"_a = report.made, "bytes"_a = report.bytes, "steps"_a = report.steps,
                  "permits_max"_a = report.max_permits, "staleness_mean"_a = report.mean_staleness,
                  "staleness_max"_a = report.max_staleness);
}

}  // namespace

void bind_embedding(py::module_& module) {
  using Unlocked = py::call_guard<py::gil_scoped_release>;
  py::class_<ServedEmbeddingOptions>(module, "EmbeddingOptions")
      .def(py::init())
      .def_readwrite("rows", &ServedEmbeddingOptions::rows)
      .def_readwrite("width", &ServedEmbeddingOptions::width)
      .def_readwrite("staleness", &ServedEmbeddingOptions::staleness)
      .def_readwrite("seed", &ServedEmbeddingOptions::seed)
      .def_readwrite("optimizer", &ServedEmbeddingOptions::optimizer)
      .def_readwrite("learning_rate", &ServedEmbeddingOptions::learning_rate)
      .def_readwrite("servers", &ServedEmbeddingOptions::servers);
  py::class_<ServedEmbedding, std::unique_ptr<ServedEmbedding, FreedUnlocked>>(module,
                                                                               "EmbeddingTable")
      .def("prefetch", &ServedEmbedding::prefetch, py::arg("ids"), Unlocked())
      .def("look_up", &ServedEmbedding::operator(), py::arg("ids"), Unlocked())
      .def("step", &ServedEmbedding::step, Unlocked())
      .def("set_rate", &ServedEmbedding::set_rate, py::arg("rate"))
      .def("read", &ServedEmbedding::read, py::arg("ids"), Unlocked())
      .def("synchronize", &ServedEmbedding::synchronize, Unlocked())
      .def("gather", &ServedEmbedding::gather, Unlocked())
      .def(
          "made",
          [](ServedEmbedding& table) {
            const ServedRows rows = table.made();
            return std::vector{rows.ids, rows.values, rows.states};
          },
          Unlocked())
      .def(
          "load",
          [](ServedEmbedding& table, const at::Tensor& ids, const at::Tensor& values,
             const at::Tensor& states) {
            table.load({ids, values, states});
          },
          py::arg("ids"), py::arg("values"), py::arg("states"), Unlocked())
      .def("report", &report_of_table)
      .def_property_readonly("bytes_sent", &ServedEmbedding::payload_bytes_sent)
      .def_property_readonly("free_permits", &ServedEmbedding::free_permits)
      .def("leave", &ServedEmbedding::leave, Unlocked())
      .def("abort", &ServedEmbedding::abort, py::arg("why"), Unlocked());
  module.def(
      "open_embedding",
      [](const ProcessGroup& group, const ServedEmbeddingOptions& options) {
        std::unique_ptr<ServedEmbedding, FreedUnlocked> table;
        {
          const py::gil_scoped_release release;
          table.reset(open_embedding(group, options).release());
        }
        return table;
      },
      py::arg("group").none(false), py::arg("options"));
}

}  // namespace gradwire::python
