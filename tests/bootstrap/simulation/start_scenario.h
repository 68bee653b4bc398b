#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gradwire/base/types.h"
#include "tests/bootstrap/simulation/sim_hosts.h"

namespace gradwire::test {

/// The fault that is injected while a job starts.
enum class StartFault : std::uint8_t {
  none,
  pieces,      ///< Messages arrive in pieces of random size.
  refused,     ///< Some connections are refused.
  reset_once,  ///< One message resets its connection.
  resets,      ///< Some messages do.
  delays,      ///< Some messages are late, by up to the timeout.
  restart,     ///< A rank is killed at one of its messages, and started again.
  death,       ///< A rank is killed at one of its messages.
  freeze,      ///< A rank stops at one of its messages; its connections stay.
  late_rank_0,
  missing_rank,
  duplicate_rank,    ///< Two processes are started as the same rank.
  wrong_secret,      ///< One rank has another secret.
  other_world_size,  ///< One rank has.
  other_job,         ///< One rank has another job id.
  silent_stranger,   ///< Connects to the listeners and sends nothing.
  garbage_stranger,  ///< Connects to the listeners and sends anything.
};
inline constexpr int kStartFaults = 17;

std::string_view name_of(StartFault fault);

/// One start of a job. Everything follows from the seed.
struct StartScenario {
  std::uint64_t seed = 0;
  StartFault fault = StartFault::none;
  int world_size = 2;
  Duration timeout = {};
  Rank victim = 0;            ///< The rank that the fault is about.
  std::uint64_t message = 0;  ///< The message at which it happens.
  Duration delay = {};        ///< Delay of the late or restarted rank.
};

StartScenario draw_start(std::uint64_t seed);

/// The result of a simulated start.
struct StartOutcome {
  std::optional<std::string> violation;
  bool happened = false;  ///< The fault came about.
  bool joined = false;    ///< All ranks joined.
  bool divided = false;   ///< One rank missed the last message of the start, and left again.
};

/// Starts the job on simulated hosts, with the code that real jobs use (connect_ranks()). Checks
/// that all ranks joined it alike, or that each surviving rank failed in time with an error that
/// names the fault.
StartOutcome simulate_start(const StartScenario& scenario);

}  // namespace gradwire::test
