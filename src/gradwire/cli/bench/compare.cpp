#include "gradwire/cli/bench/compare.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <string_view>

#include <fmt/format.h>

#include "gradwire/base/refuse.h"
#include "gradwire/base/suggest.h"
#include "gradwire/cli/bench/peers.h"
#include "gradwire/cli/launch/process.h"

namespace gradwire::cli {
namespace {

/// One system that is measured. `measure` throws Exception.
struct System {
  std::string name;
  std::function<Rows(const Cases&)> measure;
};

System gradwire_system(const BenchOptions& options) {
  return {
      "gradwire", [&options](const Cases& cases) {
        return value_or_throw(run_peer(gradwire_command(options, cases, own_executable()), cases));
      }};
}

System torch_system(const BenchOptions& options, const std::string& backend) {
  return {backend, [&options, backend](const Cases& cases) {
            const Words command = backend_command(options, cases, backend, own_executable(),
                                                  bench_file("torch_bench.py"));
            return value_or_throw(run_peer(command, cases));
          }};
}

void leave_out(const std::string& peer, const std::string& why) {
  fmt::print(stderr, "gradwire bench: {} is skipped: {}\n", peer, why);
}

std::vector<System> systems_of(const BenchOptions& options,
                               const bootstrap::Environment& environment) {
  std::vector<System> systems{gradwire_system(options)};
  for (const std::string& peer : options.compare) {
    if (peer == "gloo") {
      const std::string missing = why_missing(options.python, peer, 0);
      if (missing.empty()) {
        systems.push_back(torch_system(options, peer));
      } else {
        leave_out(peer, missing);
      }
      continue;
    }
    const auto program = build_mpi_program(options.launch.mpirun, environment);
    if (!program) {
      leave_out(peer, program.error().message);
      continue;
    }
    systems.push_back({peer, [mpi = std::make_shared<OpenMpi>(options, *program)](const Cases& c) {
                         return mpi->measure(c);
                       }});
  }
  return systems;
}

}  // namespace

namespace {

/// Peers measure sums of float32 only.
void check_sums(const BenchOptions& options, const std::string& option) {
  if (options.type == "float32" && options.op == "sum") return;
  refuse("{} measures sums of float32; omit --type and --op", option);
}

}  // namespace

void check_peers(const BenchOptions& options) {
  if (options.algorithms.size() > 1 || options.algorithms == Words{"all"}) {
    refuse("--compare takes one --algorithm, or none");
  }
  if (options.explain) {
    refuse(
        "--explain prints the tuner's estimates, --compare measures several systems: "
        "omit one of the two");
  }
  static constexpr std::string_view known[] = {"gloo", "mpi"};
  for (const std::string& peer : options.compare) {
    if (std::ranges::find(known, peer) != std::end(known)) continue;
    refuse(unknown_name("system to compare with", peer, known));
  }
  check_sums(options, "--compare");
}

void check_backend(const BenchOptions& options) {
  const LaunchArguments& launch = options.launch;
  const std::string name = "--engine " + launch.engine;
  check_sums(options, name);
  const auto omit = [&](const char* option, bool given, const char* why) {
    if (given) refuse("{} with {}: {}", option, name, why);
  };
  omit("--algorithm", !options.algorithms.empty(), "its backend chooses the algorithm");
  omit("--explain", options.explain, "its backend has no tuner of gradwire's");
  omit("--compare", !options.compare.empty(), "it measures that backend alone");
  const char* const in_the_clear = "the backend neither encrypts nor authenticates";
  omit("--encrypt", launch.encrypt, in_the_clear);
  omit("GRADWIRE_ENCRYPTION=on", own_variables()["GRADWIRE_ENCRYPTION"] == "on", in_the_clear);
  const bool is_here = launch.hosts.empty() && launch.hostfile.empty();
  const int gpus = launch.engine != "nccl" ? 0 : is_here ? ranks_to_start(launch) : 1;
  const std::string missing = why_missing(options.python, launch.engine, gpus);
  if (!missing.empty()) throw Exception(ErrorKind::unsupported, name + ": " + missing);
}

std::vector<SystemRow> measure_backend(const BenchOptions& options, const Cases& cases) {
  const System system = torch_system(options, options.launch.engine);
  std::vector<SystemRow> rows;
  for (BenchRow& row : system.measure(cases)) rows.push_back({system.name, std::move(row)});
  return rows;
}

std::vector<std::vector<SystemRow>> compare(const BenchOptions& options, const Cases& cases,
                                            const bootstrap::Environment& environment) {
  const std::vector<System> systems = systems_of(options, environment);
  std::vector<std::vector<Rows>> rounds(systems.size(), std::vector<Rows>(cases.size()));
  for (int round = 0; round < options.rounds; ++round) {
    for (std::size_t s = 0; s < systems.size(); ++s) {
      fmt::print(stderr, "# round {} of {}: {}\n", round + 1, options.rounds, systems[s].name);
      const Rows rows = systems[s].measure(cases);
      for (std::size_t c = 0; c < cases.size(); ++c) rounds[s][c].push_back(rows[c]);
    }
  }
  std::vector<std::vector<SystemRow>> table(cases.size());
  for (std::size_t c = 0; c < cases.size(); ++c) {
    for (std::size_t s = 0; s < systems.size(); ++s)
      table[c].push_back(combine(systems[s].name, rounds[s][c]));
  }
  return table;
}

}  // namespace gradwire::cli
