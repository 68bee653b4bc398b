// Parameter servers, fed with tensors. python/gradwire/served.py is the public interface.
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <torch/csrc/utils/pybind.h>

#include "gradwire/base/refuse.h"
#include "gradwire/bootstrap/failure_report.h"
#include "gradwire/host/group.h"
#include "gradwire/host/servers/builtin_shards.h"
#include "gradwire/host/servers/connect_servers.h"
#include "gradwire/host/servers/local_server.h"
#include "gradwire/servers/served_exchange.h"
#include "gradwire/step/bucket_plan.h"
#include "gradwire/torch/init.h"
#include "gradwire/torch/tensor_span.h"

namespace gradwire::python {

void bind_served(py::module_& module);

namespace {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;
using Members = std::vector<std::vector<std::size_t>>;

constexpr ArgumentName kServedArgument{"Served", "parameters", 0};

struct ServedSettings {
  int servers = 0;
  std::string mode = "sync";
  double use = 1;
  std::string rate = "none";
  int pull_every = 1;
  double bucket_cap_mb = step::kBucketMegabytes;
  std::string codec = "none", pull_codec = "none";
  std::size_t codec_min_elements = step::kCodecMinElements;
  int codec_warmup_steps = 0;
  std::uint64_t codec_seed = 1;
};

/// A server's parts of a model, with optimizers in Python.
class CalledShards final : public servers::ServedShards {
 public:
  /// `step` is called with the unit, its gradient and the factor on the learning rate. With the
  /// GIL.
  CalledShards(std::vector<at::Tensor> values, py::function step)
      : values_(std::move(values)), step_(std::move(step)) {}
  ~CalledShards() override {
    const py::gil_scoped_acquire gil;
    step_ = {};
  }
  CalledShards(const CalledShards&) = delete;
  CalledShards& operator=(const CalledShards&) = delete;

  std::size_t units() const override { return values_.size(); }
  LentSpan values(std::size_t unit) override { return lend(values_[unit], kServedArgument); }
  void step(std::size_t unit, const LentSpan& gradient, double rate) override {
    const py::gil_scoped_acquire gil;
    try {
      step_(unit, tensor_over(gradient, at::kCPU), rate);
    } catch (const py::error_already_set& error) {
      // Not Python's exception, which would leave this thread without the GIL.
      throw std::runtime_error(fmt::format("the optimizer on a server raised {}", error.what()));
    }
  }

 private:
  std::vector<at::Tensor> values_;
  py::function step_;
};

using Stepping = std::variant<BuiltinOptimizer, py::function>;

/// Called with the GIL.
std::unique_ptr<servers::ServedShards> make_shards(std::vector<at::Tensor> values, Stepping step) {
  if (auto* builtin = std::get_if<BuiltinOptimizer>(&step)) {
    return std::make_unique<BuiltinShards>(std::move(values), std::move(*builtin));
  }
  return std::make_unique<CalledShards>(std::move(values), std::move(std::get<py::function>(step)));
}

void check_parameters(const NamedTensors& parameters) {
  for (const auto& [name, tensor] : parameters) {
    if (!tensor.is_cpu()) {
      refuse("Served: parameter '{}' is on {}; servers support parameters on the CPU", name,
             tensor.device().str());
    }
    reducible_type_of(tensor, {"Served", name, 0});
  }
}

/// The parameters of each unit: DataParallel's buckets.
Members members_of_units(const NamedTensors& parameters, double bucket_cap_mb) {
  if (!(bucket_cap_mb > 0)) {
    refuse("Served: bucket_cap_mb is {}; it must be positive", bucket_cap_mb);
  }
  std::vector<step::ParameterSize> sizes;
  for (const auto& [name, tensor] : parameters) {
    sizes.push_back({tensor.nbytes(), static_cast<int>(tensor.scalar_type())});
  }
  return step::plan_buckets(sizes, step::limits_capped_at(bucket_cap_mb));
}

/// The units as workers and servers have them: `parts` divides their elements.
std::vector<exchange::UnitShape> unit_shapes(const NamedTensors& parameters, const Members& units,
                                             std::size_t parts, std::size_t codec_min_elements) {
  std::vector<exchange::UnitShape> shapes;
  for (const auto& members : units) {
    exchange::UnitShape shape;
    for (const std::size_t member : members) {
      const auto& [name, tensor] = parameters[member];
      shape.type = reducible_type_of(tensor, {"Served", name, 0});
      shape.tensors.push_back({name, shape.count, static_cast<std::size_t>(tensor.numel())});
      shape.count += static_cast<std::size_t>(tensor.numel());
    }
    shape.skip_compression = shape.count < codec_min_elements || shape.type != DataType::float32;
    shape.count = (shape.count + parts - 1) / parts * parts;
    shapes.push_back(std::move(shape));
  }
  return shapes;
}

servers::ServerPolicy served_policy(const ServedSettings& settings, int workers) {
  servers::ServerPolicy policy{.workers = workers, .use = settings.use};
  servers::set_mode(policy, settings.mode);
  policy.rate = servers::parse_rate_rule(settings.rate);
  servers::check(policy);
  return policy;
}

/// This rank as a worker, a server, or both. A worker pushes units and pulls their values, which
/// finish() waits for. Not thread-safe.
class ServedRank {
 public:
  /// Connects all workers and servers. Collective.
  ServedRank(ProcessGroup group, const NamedTensors& parameters, const ServedSettings& settings)
      : group_(std::move(group)), pull_every_(settings.pull_every) {
    initialize_vector_math();
    check_parameters(parameters);
    if (pull_every_ < 1) refuse("Served: pull_every is {}; it must be positive", pull_every_);
    members_ = members_of_units(parameters, settings.bucket_cap_mb);
    place_ = connect_servers(group_, settings.servers);
    const servers::Placement& placement = place_.placement;
    layout_ = {
        placement,
        served_policy(settings, placement.groups()),
        unit_shapes(parameters, members_, static_cast<std::size_t>(placement.parts_of_unit()),
                    settings.codec_min_elements),
        {.push = settings.codec,
         .pull = settings.pull_codec,
         .warmup_steps = settings.codec_warmup_steps,
         .seed = settings.codec_seed}};
    if (layout_.codecs.any()) check(layout_.codecs);
  }

  /// Leaves; if it cannot, or begin() has failed, ends the servers' connections to this rank.
  ~ServedRank() {
    const py::gil_scoped_release release;
    try {
      if (server_ && !exchange_ && !left_) abort("its worker has failed");
      leave();
    } catch (const std::exception& e) {
      abort(e.what());
    }
    server_.reset();
  }
  ServedRank(const ServedRank&) = delete;
  ServedRank& operator=(const ServedRank&) = delete;

  int server() const { return place_.server; }
  bool works() const { return place_.works(); }
  int servers() const { return place_.placement.servers; }
  int workers() const { return place_.placement.workers; }
  bool has_common_steps() const { return layout_.policy.has_common_steps(); }
  const Members& units() const { return members_; }
  std::vector<std::size_t> elements() const {
    std::vector<std::size_t> counts;
    for (const auto& unit : layout_.units) counts.push_back(unit.count);
    return counts;
  }

  /// Serves on a thread of its own if this rank works too; otherwise until all workers have left.
  /// Called with the GIL.
  void serve(std::vector<at::Tensor> values, Stepping step) {
    auto shards = make_shards(std::move(values), std::move(step));
    const py::gil_scoped_release release;
    servers::ServerOptions options{.placement = place_.placement,
                                   .policy = layout_.policy,
                                   .fingerprint = servers::fingerprint_of(layout_)};
    if (layout_.codecs.any()) {
      options.codecs = std::make_shared<servers::UnitCodecs>(layout_.unit_codecs());
    }
    server_ = std::make_unique<LocalServer>(place_.pairs, std::move(shards), options,
                                            std::make_shared<SteadyClock>());
    if (works()) return server_->start();
    try {
      server_->run();
    } catch (const std::exception& e) {
      abort(e.what());  // The workers get the reason.
      throw;
    }
    left_ = true;
    leave_as_server(*place_.pairs, group_);
  }

  /// Begins to work. The servers' values are worker 0's `values`, of each unit. Collective.
  void begin(const std::vector<at::Tensor>& values) {
    exchange_.emplace(place_.pairs, layout_, pull_every_);
    pushes_.resize(values.size());
    pulls_.resize(values.size());
    if (group_->getRank() == 0) {
      for (std::size_t unit = 0; unit < values.size(); ++unit) {
        exchange_->load(unit, lend(values[unit], kServedArgument));
      }
    }
    sum_over_ranks(*group_, {1});  // No worker pushes before.
    has_optional_workers_ = note_optional_workers(place_.placement, layout_.policy, group_);
  }

  void push(std::size_t unit, const at::Tensor& gradient) {
    pushes_.at(unit) = exchange_->reduce_scatter(unit, lend(gradient, kServedArgument), {}, 0);
  }
  void pull(std::size_t unit, const at::Tensor& values) {
    pulls_.at(unit) = exchange_->all_gather(unit, {}, lend(values, kServedArgument), 0);
  }
  void finish() {
    for (auto* works : {&pushes_, &pulls_}) {
      for (Work& work : *works) {
        if (work.valid()) std::exchange(work, {}).wait();
      }
    }
  }
  void pull_all(const std::vector<at::Tensor>& values) {
    finish();
    std::vector<LentSpan> spans;
    for (const at::Tensor& each : values) spans.push_back(lend(each, kServedArgument));
    exchange_->pull(spans);
  }
  void meet() {
    finish();
    exchange_->meet();
  }
  void deal(std::int64_t samples, std::int64_t epochs) {
    if (group_->getRank() == 0) exchange_->deal(samples, epochs);
    sum_over_ranks(*group_, {1});
  }
  servers::Deal take(std::int64_t count) { return exchange_->take(count); }
  void set_batches(std::int64_t batches) { exchange_->set_batches(batches); }
  void set_rate(double rate) { exchange_->set_rate(rate); }
  servers::ServerReport report() {
    finish();
    return exchange_->report();
  }
  std::size_t bytes_sent() const { return place_.pairs->payload_bytes_sent(); }

  /// Tells the servers that this worker ends, and waits for the server beside it.
  void leave() {
    if (!exchange_ || std::exchange(left_, true)) return;
    finish();
    exchange_->leave();
    if (server_) server_->worker_left();
    if (has_optional_workers_) bootstrap::note_optional({});
    server_.reset();
  }
  /// Tells them that this worker has failed.
  void abort(const std::string& why) {
    left_ = true;
    place_.pairs->abort(why);
  }

 private:
  ProcessGroup group_;
  int pull_every_;
  Members members_;
  ServersPlace place_;
  servers::ServedLayout layout_;
  std::unique_ptr<LocalServer> server_;  ///< Beside this worker; may be null.
  std::optional<servers::ServedExchange> exchange_;
  std::vector<Work> pushes_, pulls_;  ///< By unit.
  bool left_ = false;
  bool has_optional_workers_ = false;  ///< The launcher knows.
};

py::dict dict_of(const servers::Staleness& staleness) {
  using namespace py::literals;
  return py::dict("gradients"_a = staleness.count(), "mean"_a = staleness.mean(),
                  "p50"_a = staleness.quantile(0.5), "p99"_a = staleness.quantile(0.99),
                  "max"_a = staleness.max());
}

py::list list_of(const std::vector<servers::Staleness>& all) {
  py::list list;
  for (const servers::Staleness& each : all) list.append(dict_of(each));
  return list;
}

py::dict report_of(ServedRank& rank) {
  using namespace py::literals;
  servers::ServerReport report;
  {
    const py::gil_scoped_release release;
    report = rank.report();
  }
  std::int64_t repeated = 0;
  for (const servers::Dropped& each : report.dropped) repeated += each.repeated;
  const auto seconds = static_cast<double>(report.elapsed.count()) * report.servers;
  const double busy = seconds > 0 ? static_cast<double>(report.busy.count()) / seconds : 0;
  return py::dict("updates"_a = report.updates(), "late"_a = report.late(), "repeated"_a = repeated,
                  "mean_factor"_a = report.mean_factor, "busy"_a = busy,
                  "staleness"_a = dict_of(report.staleness()),
                  "by_unit"_a = list_of(report.by_unit), "by_worker"_a = list_of(report.by_worker));
}

void bind_served_options(py::module_& module) {
  py::class_<ServedSettings>(module, "ServedSettings")
      .def(py::init())
      .def_readwrite("servers", &ServedSettings::servers)
      .def_readwrite("mode", &ServedSettings::mode)
      .def_readwrite("use", &ServedSettings::use)
      .def_readwrite("rate", &ServedSettings::rate)
      .def_readwrite("pull_every", &ServedSettings::pull_every)
      .def_readwrite("bucket_cap_mb", &ServedSettings::bucket_cap_mb)
      .def_readwrite("codec", &ServedSettings::codec)
      .def_readwrite("pull_codec", &ServedSettings::pull_codec)
      .def_readwrite("codec_min_elements", &ServedSettings::codec_min_elements)
      .def_readwrite("codec_warmup_steps", &ServedSettings::codec_warmup_steps)
      .def_readwrite("codec_seed", &ServedSettings::codec_seed);
  py::class_<BuiltinOptimizer>(module, "BuiltinOptimizer")
      .def(py::init([](const std::string& name) { return BuiltinOptimizer{.name = name}; }),
           py::arg("name"))
      .def_readwrite("lr", &BuiltinOptimizer::lr)
      .def_readwrite("momentum", &BuiltinOptimizer::momentum)
      .def_readwrite("dampening", &BuiltinOptimizer::dampening)
      .def_readwrite("nesterov", &BuiltinOptimizer::nesterov)
      .def_readwrite("weight_decay", &BuiltinOptimizer::weight_decay)
      .def_readwrite("beta1", &BuiltinOptimizer::beta1)
      .def_readwrite("beta2", &BuiltinOptimizer::beta2)
      .def_readwrite("eps", &BuiltinOptimizer::eps)
      .def_readwrite("lr_decay", &BuiltinOptimizer::lr_decay)
      .def_readwrite("initial_accumulator_value", &BuiltinOptimizer::initial_accumulator_value);
}

void bind_served_rank(py::module_& module) {
  using Unlocked = py::call_guard<py::gil_scoped_release>;
  py::class_<ServedRank>(module, "ServedRank")
      .def(py::init<ProcessGroup, const NamedTensors&, const ServedSettings&>(),
           py::arg("group").none(false), py::arg("parameters"), py::arg("settings"), Unlocked())
      .def_property_readonly("server", &ServedRank::server)
      .def_property_readonly("works", &ServedRank::works)
      .def_property_readonly("servers", &ServedRank::servers)
      .def_property_readonly("workers", &ServedRank::workers)
      .def_property_readonly("has_common_steps", &ServedRank::has_common_steps)
      .def_property_readonly("units", &ServedRank::units)
      .def_property_readonly("elements", &ServedRank::elements)
      .def_property_readonly("bytes_sent", &ServedRank::bytes_sent)
      .def("serve", &ServedRank::serve, py::arg("values"), py::arg("step"))
      .def("begin", &ServedRank::begin, py::arg("values"), Unlocked())
      .def("push", &ServedRank::push, py::arg("unit"), py::arg("gradient"), Unlocked())
      .def("pull", &ServedRank::pull, py::arg("unit"), py::arg("values"), Unlocked())
      .def("finish", &ServedRank::finish, Unlocked())
      .def("pull_all", &ServedRank::pull_all, py::arg("values"), Unlocked())
      .def("meet", &ServedRank::meet, Unlocked())
      .def("deal", &ServedRank::deal, py::arg("samples"), py::arg("epochs"), Unlocked())
      .def(
          "take",
          [](ServedRank& rank, std::int64_t count) {
            servers::Deal batch;
            {
              const py::gil_scoped_release release;
              batch = rank.take(count);
            }
            return py::make_tuple(batch.epoch, batch.begin, batch.count, batch.applied);
          },
          py::arg("count"))
      .def("set_batches", &ServedRank::set_batches, py::arg("batches"))
      .def("set_rate", &ServedRank::set_rate, py::arg("rate"))
      .def("report", &report_of)
      .def("leave", &ServedRank::leave, Unlocked())
      .def("abort", &ServedRank::abort, py::arg("why"), Unlocked());
}

}  // namespace

void bind_served(py::module_& module) {
  using Unlocked = py::call_guard<py::gil_scoped_release>;
  bind_served_options(module);
  bind_served_rank(module);
  module.def(
      "broadcast_tensors",
      [](const ProcessGroup& group, const NamedTensors& named) {
        std::vector<NamedTensor> tensors;
        for (const auto& [name, tensor] : named) tensors.push_back({name, tensor});
        broadcast_tensors(*group, tensors);
      },
      py::arg("group"), py::arg("tensors"), Unlocked());
}

}  // namespace gradwire::python
