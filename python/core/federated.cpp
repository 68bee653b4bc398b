// Simulated federated learning. python/gradwire/federated.py is the public interface.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <torch/csrc/utils/pybind.h>

#include "gradwire/base/clock.h"
#include "gradwire/base/refuse.h"
#include "gradwire/federated/computed_updates.h"
#include "gradwire/federated/fairness.h"
#include "gradwire/federated/quantizer_sequence.h"
#include "gradwire/federated/simulated_rounds.h"

namespace gradwire::python {

void bind_federated(py::module_& module);

/// The elements. Throws Exception(invalid_argument) unless it is a contiguous float32 tensor on the
/// CPU.
std::span<const float> floats_of(const at::Tensor& tensor);

std::span<const float> floats_of(const at::Tensor& tensor) {
  if (tensor.scalar_type() != at::kFloat || !tensor.is_contiguous() || !tensor.device().is_cpu())
    refuse("expected a contiguous float32 tensor on the CPU");
  return {tensor.const_data_ptr<float>(), static_cast<std::size_t>(tensor.numel())};
}

namespace {

using federated::RunSeeds;

struct FederatedSettings {
  int ask = 10, use = 10, least = 1;
  double window_s = 60;
  std::string select = "uniform", partial = "count";
  int epochs = 1;
  int bits = 32;
  bool rotate = false;
  double mask = 1, clip = 0;
  bool secure = false;
  double dropping = 0.1, colluding = 0.05;
  std::vector<double> compute_s{10, 0.5}, up{6e5, 0.5}, down{2.5e6, 0.5};
  double eligible = 1, drop = 0, stragglers = 0;
  std::uint64_t seed = 1;
};

/// Trains by a function in Python: (client, round, epochs) -> (update, steps, training loss,
/// evaluated, correct, loss).
class CalledTrainer final : public federated::ClientTrainer {
 public:
  void set(py::function train) { train_ = std::move(train); }

  federated::LocalResult train(const federated::LocalWork& work) override {
    using Returned =
        std::tuple<at::Tensor, std::int64_t, double, std::int64_t, std::int64_t, double>;
    const auto [update, steps, training_loss, evaluated, correct, loss] =
        train_(work.client, work.round, work.epochs).cast<Returned>();
    update_ = update;
    return {floats_of(update_), steps, training_loss, evaluated, correct, loss};
  }

 private:
  py::function train_;
  at::Tensor update_;
};

federated::RoundPolicy policy_of(const FederatedSettings& from) {
  federated::RoundPolicy policy{.ask = from.ask,
                                .use = from.use,
                                .least = from.least,
                                .window = duration_of(from.window_s),
                                .selection = federated::selection_named(from.select)};
  if (from.secure) {
    policy.secure.emplace();
    policy.secure->policy = value_or_throw(federated::find_policy(
        {.clients = from.use, .dropping = from.dropping, .colluding = from.colluding}));
  }
  check(policy);
  return policy;
}

LogNormal log_normal(const std::vector<double>& from) {
  return {from.at(0), from.at(1)};
}

federated::DeviceModel devices_of(const FederatedSettings& from) {
  return {.compute = log_normal(from.compute_s),
          .up = log_normal(from.up),
          .down = log_normal(from.down),
          .eligible = from.eligible,
          .drop = from.drop,
          .stragglers = from.stragglers};
}

class FederatedRounds {
 public:
  FederatedRounds(const FederatedSettings& settings, std::vector<std::int64_t> samples,
                  std::size_t elements)
      : settings_(settings),
        quantizers_({settings.bits, settings.rotate, settings.mask, settings.clip}, elements,
                    RunSeeds::of(settings.seed).updates),
        rounds_(policy_of(settings),
                {devices_of(settings), std::move(samples), RunSeeds::of(settings.seed).devices},
                work_of(settings, elements), settings.seed) {
    auto trainer = std::make_unique<CalledTrainer>();
    trainer_ = trainer.get();
    std::vector<std::unique_ptr<federated::ClientTrainer>> trainers;
    trainers.push_back(std::move(trainer));
    updates_.emplace(std::move(trainers));
  }

  /// Returns what the round was, and the mean update, or None if the round was abandoned.
  std::pair<py::dict, std::optional<at::Tensor>> next(py::function train) {
    trainer_->set(std::move(train));
    const federated::UpdateQuantizer quantizer = quantizers_.quantizer(rounds_.number());
    const bool normalizes = settings_.partial == "normalize";
    updates_->set_round(rounds_.number(), {},
                        {&quantizer, normalizes, RunSeeds::of(settings_.seed).updates});
    const federated::Round& round = rounds_.next(
        *updates_, {quantizer.elements(), federated::Metrics::kElements}, quantizers_.bits());
    py::dict record = to_dict(round.record());
    record["up_bytes"] = rounds_.up_bytes();
    record["down_bytes"] = rounds_.down_bytes();
    if (round.record().is_abandoned) return {record, std::nullopt};
    const federated::Metrics metrics = federated::metrics_of(round.sum()[1]);
    quantizers_.add(metrics);
    add_metrics(record, metrics);
    const std::vector<float> mean = quantizer.mean(round.sum()[0], round.weight());
    at::Tensor update = at::tensor(mean);
    if (normalizes) update *= metrics.weighted_steps / static_cast<double>(round.weight());
    return {record, update};
  }

  std::uint64_t training_seed() const { return RunSeeds::of(settings_.seed).training; }
  double jain() const { return federated::jain_index(rounds_.records()); }
  std::vector<std::int64_t> counted() const {
    std::vector<std::int64_t> counted;
    for (const federated::ClientRecord& one : rounds_.records()) counted.push_back(one.counted);
    return counted;
  }

 private:
  static federated::SimulatedWork work_of(const FederatedSettings& settings, std::size_t elements) {
    return {.epochs = settings.epochs,
            .partial = federated::partial_named(settings.partial),
            .model_bytes = static_cast<double>(elements * sizeof(float))};
  }

  static py::dict to_dict(const federated::RoundRecord& record) {
    using namespace py::literals;
    return py::dict("round"_a = record.number, "asked"_a = record.asked, "ready"_a = record.ready,
                    "used"_a = record.used, "dropped"_a = record.dropped,
                    "abandoned"_a = record.is_abandoned, "reason"_a = record.reason,
                    "seconds"_a = seconds(record.ended - record.began));
  }

  static void add_metrics(py::dict& record, const federated::Metrics& metrics) {
    const auto clients = static_cast<double>(metrics.clients);
    record["steps"] = metrics.steps;
    record["clipped"] = metrics.clipped;
    record["training_loss"] = metrics.training_loss / clients;
    if (metrics.evaluated == 0) return;
    record["accuracy"] = metrics.accuracy();
    record["loss"] = metrics.loss / static_cast<double>(metrics.evaluated);
  }

  FederatedSettings settings_;
  federated::QuantizerSequence quantizers_;
  federated::SimulatedRounds rounds_;
  CalledTrainer* trainer_ = nullptr;
  std::optional<federated::ComputedUpdates> updates_;
};

}  // namespace

void bind_federated(py::module_& module) {
  using Settings = FederatedSettings;
  py::class_<Settings>(module, "FederatedSettings")
      .def(py::init())
      .def_readwrite("ask", &Settings::ask)
      .def_readwrite("use", &Settings::use)
      .def_readwrite("least", &Settings::least)
      .def_readwrite("window_s", &Settings::window_s)
      .def_readwrite("select", &Settings::select)
      .def_readwrite("partial", &Settings::partial)
      .def_readwrite("epochs", &Settings::epochs)
      .def_readwrite("bits", &Settings::bits)
      .def_readwrite("rotate", &Settings::rotate)
      .def_readwrite("mask", &Settings::mask)
      .def_readwrite("clip", &Settings::clip)
      .def_readwrite("secure", &Settings::secure)
      .def_readwrite("dropping", &Settings::dropping)
      .def_readwrite("colluding", &Settings::colluding)
      .def_readwrite("compute_s", &Settings::compute_s)
      .def_readwrite("up", &Settings::up)
      .def_readwrite("down", &Settings::down)
      .def_readwrite("eligible", &Settings::eligible)
      .def_readwrite("drop", &Settings::drop)
      .def_readwrite("stragglers", &Settings::stragglers)
      .def_readwrite("seed", &Settings::seed);
  py::class_<FederatedRounds>(module, "FederatedRounds")
      .def(py::init<const Settings&, std::vector<std::int64_t>, std::size_t>(), py::arg("settings"),
           py::arg("samples"), py::arg("elements"))
      .def("next", &FederatedRounds::next, py::arg("train"))
      .def("training_seed", &FederatedRounds::training_seed)
      .def("jain", &FederatedRounds::jain)
      .def("counted", &FederatedRounds::counted);
}

}  // namespace gradwire::python
