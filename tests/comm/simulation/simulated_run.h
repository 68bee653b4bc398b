#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gradwire/base/random.h"
#include "gradwire/comm/simulation.h"
#include "tests/comm/simulation/sim_collective.h"

/// One seeded simulation of a job: the configuration, the operations and the faults are all drawn
/// from the seed, so that the seed alone replays it.
namespace gradwire::test {

enum class Fault : std::uint8_t {
  none,
  kill,       ///< A rank's process ends.
  cut,        ///< A rank's cable is pulled.
  freeze,     ///< A rank stands still, perhaps for longer than the others put up with.
  suspend,    ///< All stand still together, as on a machine that sleeps.
  reset,      ///< A connection breaks.
  flip,       ///< A bit changes on the wire.
  mismatch,   ///< A rank calls something else than the others.
  absence,    ///< A rank does not make the last call.
  departure,  ///< A rank closes its communicator instead of making the last call.
  rails,  ///< Rails but for one are cut, perhaps mended, reset or slowed: no operation may fail.
};

std::string_view name_of(Fault fault);

/// Something happens to one rail.
struct RailFault {
  enum class Kind : std::uint8_t { cut, reset, slow, outage };
  Kind kind = Kind::cut;
  Time at{};
  Rank victim = 0;
  Rank other = 0;  ///< Of a reset: between the two.
  int rail = 0;
  Duration lasts{};               ///< Of an outage.
  double bytes_per_second = 1e6;  ///< From then on, if it is slowed.
};

/// What a seed stands for.
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
  ExecutorOptions options;
  SimOptions network;
  std::vector<SimHost> hosts;
  std::vector<int> host_of;
  std::vector<RailFault> rail_faults;
  bool leaves = false;    ///< Each rank closes its communicator when its operations are done.
  bool in_place = false;  ///< What comes is read where it lies.

  std::string describe() const;
};

Scenario draw_scenario(std::uint64_t seed);

/// Runs the scenario. What went wrong: a wrong result, an operation that neither succeeded nor
/// failed, a failure without cause, an input written where it must survive; nothing if all is well.
std::optional<std::string> violation_of(const Scenario& scenario);

}  // namespace gradwire::test
