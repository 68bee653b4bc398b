// Clients of federated learning. python/gradwire/federated_client.py is the public interface.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <poll.h>
#include <pybind11/functional.h>
#include <torch/csrc/utils/pybind.h>

#include "gradwire/base/clock.h"
#include "gradwire/federated/remote/participant.h"
#include "gradwire/net/deadline.h"
#include "gradwire/net/host_network.h"
#include "gradwire/net/poll_set.h"

namespace gradwire::python {

void bind_federated_client(py::module_& module);
std::span<const float> floats_of(const at::Tensor& tensor);  // federated.cpp

namespace {

using federated::Participant;
using Shapes = std::vector<std::pair<std::string, std::vector<std::int64_t>>>;

/// Between two looks for signals while the GIL is released.
constexpr std::chrono::milliseconds kLookForSignals{100};

struct FederatedClientSettings {
  std::string identity, server;
  bool plugged = false;
  std::string command;
  std::function<bool()> test;
  federated::CostLimits limits;
  bool is_secure = false, is_active = false;
  std::optional<int> least_threshold;
  double give_up_s = 600;
};

Participant::Options participant_options(const FederatedClientSettings& from) {
  Participant::Options options = Participant::options_of(from.identity);
  options.session.server = from.server;
  options.session.limits = from.limits;
  options.session.secure =
      federated::SecureDemands::of(from.is_secure, from.is_active, from.least_threshold);
  options.session.give_up = duration_of(from.give_up_s);
  options.eligibility.plugged = from.plugged;
  options.eligibility.command = from.command;
  options.eligibility.test = from.test;
  return options;
}

/// A Participant whose calls release the GIL, and end with the exception of a signal's handler.
class FederatedParticipant {
 public:
  explicit FederatedParticipant(const FederatedClientSettings& settings)
      : participant_(network_, participant_options(settings), &time_of_day) {}

  std::string configuration() {
    return interruptibly([this] { return participant_.description().configuration; });
  }
  void set_tensors(const Shapes& shapes) {
    std::vector<federated::ModelDescription::Shape> own;
    for (const auto& [name, sizes] : shapes) own.push_back({name, sizes});
    interruptibly([&] { participant_.set_tensors(own); });
  }
  std::optional<Participant::Work> begin(std::int64_t samples) {
    return interruptibly([this, samples] { return participant_.begin(samples); });
  }
  bool goes_on() { return participant_.goes_on(); }
  std::pair<bool, std::string> end(const at::Tensor& update, std::int64_t steps,
                                   double training_loss, std::int64_t evaluated,
                                   std::int64_t correct, double loss, std::int64_t all_steps) {
    const federated::LocalResult result{floats_of(update), steps,   training_loss,
                                        evaluated,         correct, loss};
    const auto [counted, reason] =
        interruptibly([&] { return participant_.end(result, all_steps); });
    return {counted, reason};
  }
  void leave() {
    interruptibly([&] { participant_.leave(federated::LeaveReason::training_failed); });
  }
  void stop() { participant_.stop(); }

 private:
  template <class Call>
  std::invoke_result_t<Call> interruptibly(const Call& call) {
    const py::gil_scoped_release released;
    auto ended = value_or_throw(network_.make_pair());
    net::PollSet set;
    const std::size_t end = set.add(ended.first, POLLIN);
    // Destroyed before `released`: it waits for the call, which may need the GIL.
    auto result = std::async(std::launch::async, [&] {
      const net::Socket closes = std::move(ended.second);
      return call();
    });
    while (true) {
      set.wait(net::Deadline::after(network_.clock(), kLookForSignals));
      if (set.returned_events(end) != 0) break;
      const py::gil_scoped_acquire gil;
      if (PyErr_CheckSignals() == 0) continue;
      participant_.stop();
      throw py::error_already_set();
    }
    return result.get();
  }

  net::KernelNetwork network_;
  Participant participant_;
};

}  // namespace

void bind_federated_client(py::module_& module) {
  using Settings = FederatedClientSettings;
  using Work = Participant::Work;
  using federated::ClientCost;
  using federated::CostLimits;
  py::class_<ClientCost>(module, "FederatedCost")
      .def(py::init())
      .def_readwrite("compute_s", &ClientCost::compute_seconds)
      .def_readwrite("up_bytes", &ClientCost::up_bytes)
      .def_readwrite("down_bytes", &ClientCost::down_bytes);
  py::class_<CostLimits>(module, "FederatedLimits")
      .def(py::init())
      .def_readwrite("round", &CostLimits::round)
      .def_readwrite("day", &CostLimits::day)
      .def_readwrite("memory_bytes", &CostLimits::memory_bytes);
  py::class_<Settings>(module, "FederatedClientSettings")
      .def(py::init())
      .def_readwrite("identity", &Settings::identity)
      .def_readwrite("server", &Settings::server)
      .def_readwrite("plugged", &Settings::plugged)
      .def_readwrite("command", &Settings::command)
      .def_readwrite("test", &Settings::test)
      .def_readwrite("limits", &Settings::limits)
      .def_readwrite("secure", &Settings::is_secure)
      .def_readwrite("active", &Settings::is_active)
      .def_readwrite("least_threshold", &Settings::least_threshold)
      .def_readwrite("give_up_s", &Settings::give_up_s);
  py::class_<Work>(module, "FederatedWork")
      .def_readonly("client", &Work::client)
      .def_readonly("round", &Work::round)
      .def_property_readonly("epochs", [](const Work& work) { return work.plan.epochs; })
      .def_property_readonly("batch_size", [](const Work& work) { return work.plan.batch_size; })
      .def_property_readonly("optimizer", [](const Work& work) { return work.plan.optimizer; })
      .def_property_readonly("proximal", [](const Work& work) { return work.plan.proximal; })
      .def_property_readonly("seed", [](const Work& work) { return work.plan.order_seed; })
      .def_property_readonly("model", [](const Work& work) { return at::tensor(work.model); });
  py::class_<FederatedParticipant>(module, "FederatedParticipant")
      .def(py::init<const Settings&>(), py::arg("settings"))
      .def("configuration", &FederatedParticipant::configuration)
      .def("set_tensors", &FederatedParticipant::set_tensors, py::arg("shapes"))
      .def("begin", &FederatedParticipant::begin, py::arg("samples"))
      .def("goes_on", &FederatedParticipant::goes_on)
      .def("end", &FederatedParticipant::end, py::arg("update"), py::arg("steps"),
           py::arg("training_loss"), py::arg("evaluated"), py::arg("correct"), py::arg("loss"),
           py::arg("all_steps"))
      .def("leave", &FederatedParticipant::leave)
      .def("stop", &FederatedParticipant::stop);
}

}  // namespace gradwire::python
