#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gradwire/base/random.h"
#include "gradwire/engine/simulated_job.h"
#include "tests/support/sim_collective.h"

/// One seeded simulation of a job: the configuration, the operations and the faults are all drawn
/// from the seed, so that the seed alone replays it.
namespace gradwire::test {

enum class Fault : std::uint8_t {
  none,
  kill,       ///< A rank's process ends.
  cut,        ///< A rank's cable is pulled.
  freeze,     ///< A rank pauses, perhaps for longer than the others' timeout.
  suspend,    ///< All ranks pause together, as on a suspended machine.
  reset,      ///< A connection breaks.
  flip,       ///< A bit changes on the wire.
  mismatch,   ///< A rank calls an operation other than the others'.
  absence,    ///< A rank does not make the last call.
  departure,  ///< A rank closes its communicator instead of making the last call.
  rails,      ///< All rails but one are cut (perhaps mended), reset or slowed: no error may result.
};

std::string_view name_of(Fault fault);

/// A fault of one rail.
struct RailFault {
  enum class Kind : std::uint8_t { cut, reset, slow, outage };
  Kind kind = Kind::cut;
  Time at{};
  Rank victim = 0;
  Rank other = 0;  ///< The other end, if it is a reset.
  int rail = 0;
  Duration lasts{};               ///< Duration of an outage.
  double bytes_per_second = 1e6;  ///< From the fault on, if the rail is slowed.
};

/// Everything that a seed determines.
struct Scenario {
  std::uint64_t seed = 0;
  int ranks = 2;
  std::vector<Case> cases;                ///< The operations, in the order every rank calls them.
  std::vector<std::vector<Time>> posted;  ///< Per rank and operation: when it calls it.
  Fault fault = Fault::none;
  Time fault_at{};
  Rank victim = 0;
  Rank other = 0;
  Duration freeze_for{};
  engine::ExecutorOptions options;
  net::SimOptions network;
  std::vector<net::SimHost> hosts;
  std::vector<int> host_of;
  std::vector<RailFault> rail_faults;
  bool leaves = false;    ///< Each rank closes its communicator when its operations are done.
  bool in_place = false;  ///< Received bytes are read in place.

  std::string describe() const;
};

Scenario draw_scenario(std::uint64_t seed);

/// Runs the scenario. Returns the violation: a wrong result, an operation that neither succeeded
/// nor failed, a failure without cause, or an overwritten input; nothing if there is none.
std::optional<std::string> violation_of(const Scenario& scenario);

}  // namespace gradwire::test
