// The training host, fed with tensors: what training classes in Python stand on.
// tests/python/test_host.py has an example.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <torch/csrc/utils/pybind.h>

#include "gradwire/base/refuse.h"
#include "gradwire/host/buckets.h"
#include "gradwire/host/training_host.h"
#include "gradwire/step/bucket_plan.h"

namespace gradwire::python {

void bind_host(py::module_& module);

namespace {

using Named = std::vector<std::pair<std::string, at::Tensor>>;

Named trainable(const Named& parameters) {
  for (const auto& [name, tensor] : parameters) {
    if (!tensor.requires_grad() || !tensor.is_leaf()) {
      refuse(
          "parameter '{}' is not trainable, or the result of an operation: pass the leaves that "
          "require gradients",
          name);
    }
  }
  return parameters;
}

std::vector<NamedTensor> named_tensors(const Named& named) {
  std::vector<NamedTensor> tensors;
  for (const auto& [name, tensor] : named) tensors.push_back({name, tensor});
  return tensors;
}

step::Overlap overlap_named(const std::string& name) {
  if (name == "none") return step::Overlap::none;
  if (name == "backward") return step::Overlap::backward;
  if (name == "full") return step::Overlap::full;
  refuse("overlap is '{}': choose none, backward or full", name);
}

/// Calls Python, on whatever thread the unit is complete.
class CalledOptimizer final : public UnitOptimizer {
 public:
  /// Called with the GIL.
  explicit CalledOptimizer(py::function step) : step_(std::move(step)) {}
  ~CalledOptimizer() override {
    const py::gil_scoped_acquire gil;
    step_ = {};
  }
  CalledOptimizer(const CalledOptimizer&) = delete;
  CalledOptimizer& operator=(const CalledOptimizer&) = delete;

  bool step(std::size_t unit, double factor) override {
    const py::gil_scoped_acquire gil;
    step_(unit, factor);
    return true;
  }

 private:
  py::function step_;
};

struct HostOptions {
  double bucket_cap_mb = step::kBucketMegabytes;
  std::string overlap = "backward";
  bool forward_awaits = false;
  bool broadcast_buffers = true;
  bool find_unused = false;
  bool check_finite = false;
  bool can_abandon = false;
  std::string codec = "none";
  std::size_t codec_min_elements = step::kCodecMinElements;
  int codec_warmup_steps = 0;
  std::uint64_t codec_seed = 1;
};

BucketsOptions buckets_options(const HostOptions& options) {
  if (!(options.bucket_cap_mb > 0)) {
    refuse("bucket_cap_mb is {}; it must be positive", options.bucket_cap_mb);
  }
  return {.limits = step::limits_capped_at(options.bucket_cap_mb),
          .compress = options.codec != "none",
          .codec_min_elements = options.codec_min_elements,
          .find_unused = options.find_unused,
          .check_finite = options.check_finite};
}

TrainingHostOptions host_options(const std::string& who, const HostOptions& options, bool steps) {
  const step::Overlap overlap = overlap_named(options.overlap);
  if (overlap == step::Overlap::full && !steps) {
    refuse("overlap 'full' requires a function that steps a unit; pass step=, or use 'backward'");
  }
  return {.who = who,
          .policy = {.stage = 0, .overlap = overlap},
          .exchange = {.codec = options.codec,
                       .warmup_steps = options.codec_warmup_steps,
                       .seed = options.codec_seed,
                       .can_abandon = options.can_abandon},
          .forward_awaits = options.forward_awaits,
          .broadcast_buffers = options.broadcast_buffers,
          .find_unused = options.find_unused};
}

/// A TrainingHost of replicated parameters, with their buckets and Python's function that steps.
class ReplicatedHost {
 public:
  ReplicatedHost(const ProcessGroup& group, const Named& parameters, const HostOptions& options,
                 std::unique_ptr<UnitOptimizer> optimizer, const Named& buffers)
      : buckets_(std::in_place, group, kName, named_tensors(trainable(parameters)),
                 buckets_options(options)),
        optimizer_(std::move(optimizer)),
        host_(std::in_place, group, *buckets_, optimizer_.get(), named_tensors(buffers),
              host_options(kName, options, optimizer_ != nullptr)) {}

  /// Waits for the pending step, which may call Python on another thread.
  ~ReplicatedHost() {
    const py::gil_scoped_release release;
    host_.reset();
    optimizer_.reset();
    buckets_.reset();  // Perhaps the last owner of the group, which waits for its threads.
  }
  ReplicatedHost(const ReplicatedHost&) = delete;
  ReplicatedHost& operator=(const ReplicatedHost&) = delete;

  static std::unique_ptr<ReplicatedHost> make(const ProcessGroup& group, const Named& parameters,
                                              const HostOptions& options,
                                              std::optional<py::function> step,
                                              const Named& buffers) {
    std::unique_ptr<UnitOptimizer> optimizer;
    if (step) optimizer = std::make_unique<CalledOptimizer>(std::move(*step));
    const py::gil_scoped_release release;
    return std::make_unique<ReplicatedHost>(group, parameters, options, std::move(optimizer),
                                            buffers);
  }

  std::size_t add_block(std::vector<std::size_t> units) {
    for (const std::size_t unit : units) {
      if (unit >= buckets_->step_units().size()) {
        refuse("unit {} is none of {}", unit, buckets_->step_units().size());
      }
    }
    ++blocks_;
    return host_->add_block(std::move(units));
  }
  std::size_t known_block(std::size_t block) const {
    if (block >= blocks_) refuse("block {} is none of {}: add it first", block, blocks_);
    return block;
  }

  TrainingHost& host() { return *host_; }
  std::vector<std::vector<std::size_t>> units() const { return buckets_->layout().members; }

 private:
  static constexpr const char* kName = "TrainingHost";

  std::optional<Buckets> buckets_;
  std::unique_ptr<UnitOptimizer> optimizer_;
  std::optional<TrainingHost> host_;
  std::size_t blocks_ = 0;
};

void bind_host_options(py::module_& module) {
  py::class_<HostOptions>(module, "HostOptions")
      .def(py::init())
      .def_readwrite("bucket_cap_mb", &HostOptions::bucket_cap_mb)
      .def_readwrite("overlap", &HostOptions::overlap)
      .def_readwrite("forward_awaits", &HostOptions::forward_awaits)
      .def_readwrite("broadcast_buffers", &HostOptions::broadcast_buffers)
      .def_readwrite("find_unused", &HostOptions::find_unused)
      .def_readwrite("check_finite", &HostOptions::check_finite)
      .def_readwrite("can_abandon", &HostOptions::can_abandon)
      .def_readwrite("codec", &HostOptions::codec)
      .def_readwrite("codec_min_elements", &HostOptions::codec_min_elements)
      .def_readwrite("codec_warmup_steps", &HostOptions::codec_warmup_steps)
      .def_readwrite("codec_seed", &HostOptions::codec_seed);
}

/// Binds a member function of the host, which is called without the GIL.
template <class... Arguments>
auto on_host(void (TrainingHost::*function)(Arguments...)) {
  return [function](ReplicatedHost& host, Arguments... arguments) {
    (host.host().*function)(arguments...);
  };
}

}  // namespace

void bind_host(py::module_& module) {
  using Unlocked = py::call_guard<py::gil_scoped_release>;
  bind_host_options(module);
  py::class_<ReplicatedHost>(module, "TrainingHost")
      .def(py::init(&ReplicatedHost::make), py::arg("group").none(false), py::arg("parameters"),
           py::arg("options"), py::kw_only(), py::arg("step") = py::none(),
           py::arg("buffers") = Named())
      .def_property_readonly("units", &ReplicatedHost::units)
      .def(
          "add_block",
          [](ReplicatedHost& host, const std::vector<std::size_t>& units) {
            return host.add_block(units);
          },
          py::arg("units"), Unlocked())
      .def("before_forward", on_host(&TrainingHost::before_forward), py::arg("training"),
           Unlocked())
      .def(
          "before_block",
          [](ReplicatedHost& host, std::size_t block) {
            host.host().before_block(host.known_block(block));
          },
          py::arg("block"), Unlocked())
      .def(
          "after_block",
          [](ReplicatedHost& host, std::size_t block, const std::vector<at::Tensor>& outputs) {
            host.host().after_block(host.known_block(block), outputs);
          },
          py::arg("block"), py::arg("outputs"), Unlocked())
      .def("after_forward", on_host(&TrainingHost::after_forward), py::arg("outputs"), Unlocked())
      .def(
          "set_synchronizes",
          [](ReplicatedHost& host, bool yes) { host.host().set_synchronizes(yes); }, py::arg("yes"))
      .def("begin_step", on_host(&TrainingHost::begin_step), py::arg("factor") = 1.0, Unlocked())
      .def("abandon_step", on_host(&TrainingHost::abandon_step), Unlocked())
      .def("finish", on_host(&TrainingHost::finish), Unlocked())
      .def("synchronize_buffers", on_host(&TrainingHost::synchronize_buffers), Unlocked());
}

}  // namespace gradwire::python
