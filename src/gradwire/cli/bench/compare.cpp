#include "gradwire/cli/bench/compare.h"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <string_view>

#include <fmt/format.h>

#include "gradwire/base/suggest.h"
#include "gradwire/cli/bench/captured.h"
#include "gradwire/cli/bench/mpi_program.h"
#include "gradwire/cli/bench/peers.h"
#include "gradwire/cli/launch/process.h"

namespace gradwire {
namespace {

constexpr Duration kLimit = std::chrono::minutes(30);

/// Up to this size Open MPI's algorithms are tried for a time, above it for a number of iterations.
constexpr std::size_t kQuickBytes = 4 << 20;
constexpr double kTrialSeconds = 0.1;
constexpr int kTrialIterations = 2;

using Cases = std::vector<BenchCase>;
using Rows = std::vector<BenchRow>;

/// Measures cases on one system. Throws Exception.
struct System {
  std::string name;
  std::function<Rows(const Cases&)> measure;
};

Result<Rows> run(const Words& command, const Cases& cases) {
  const auto ended = run_captured(command, kLimit);
  if (!ended) return tl::unexpected(ended.error());
  if (ended->status != 0) {
    return failure(ErrorKind::system,
                   fmt::format("{} ended with exit status {}:\n{}{}", command.front(),
                               ended->status, ended->out, ended->err));
  }
  return parse_rows(ended->out, cases);
}

System gradwire_system(const BenchOptions& options) {
  return {"gradwire", [&options](const Cases& cases) {
            return value_or_throw(run(gradwire_command(options, cases, own_executable()), cases));
          }};
}

/// Nothing, or why Gloo cannot be measured.
std::string gloo_missing(const BenchOptions& options) {
  const std::string python = options.python;
  const auto tried = run_captured(
      {python, "-c",
       "import sys, torch.distributed as d; sys.exit(0 if d.is_gloo_available() else 'no Gloo')"},
      std::chrono::minutes(2));
  if (!tried) return tried.error().message;
  if (tried->status == 0) return "";
  return fmt::format("{} has no PyTorch with Gloo; name one that has with --python", python);
}

System gloo_system(const BenchOptions& options) {
  return {
      "gloo", [&options](const Cases& cases) {
        const std::string script = bench_file("gloo_bench.py");
        return value_or_throw(run(gloo_command(options, cases, own_executable(), script), cases));
      }};
}

/// Open MPI, which must first find out what it does best.
class OpenMpi {
 public:
  OpenMpi(const BenchOptions& options, std::string program)
      : options_(options), program_(std::move(program)) {}

  Rows measure(const Cases& cases) {
    if (best_.empty()) find_best(cases);
    std::map<std::string, std::vector<std::size_t>> by_algorithm;
    for (std::size_t i = 0; i < cases.size(); ++i) by_algorithm[best_[i]].push_back(i);
    Rows rows(cases.size());
    for (const auto& [algorithm, indices] : by_algorithm) {
      Cases some;
      for (std::size_t i : indices) some.push_back(cases[i]);
      const Rows measured = value_or_throw(run_with(some, algorithm));
      for (std::size_t k = 0; k < indices.size(); ++k) rows[indices[k]] = measured[k];
    }
    return rows;
  }

 private:
  Result<Rows> run_with(const Cases& cases, const std::string& algorithm) const {
    auto rows = run(mpi_command(options_, cases, own_executable(), program_, algorithm), cases);
    if (!rows) return rows;
    for (BenchRow& row : *rows) row.measured.algorithm = algorithm;
    return rows;
  }

  void find_best(const Cases& cases) {
    best_.assign(cases.size(), "default");
    std::vector<double> fastest(cases.size(), 0);
    for (const std::string& algorithm : mpi_algorithms(cases.front().collective)) {
      for (const bool quick : {true, false}) try_out(cases, quick, algorithm, fastest);
    }
  }

  /// An algorithm that fails with this number of ranks is just not the best.
  void try_out(const Cases& cases, bool quick, const std::string& algorithm,
               std::vector<double>& fastest) {
    Cases some;
    std::vector<std::size_t> indices;
    for (std::size_t i = 0; i < cases.size(); ++i) {
      if ((cases[i].bytes <= kQuickBytes) != quick) continue;
      some.push_back(cases[i]);
      some.back().seconds = kTrialSeconds;
      some.back().iterations = quick ? 0 : kTrialIterations;
      indices.push_back(i);
    }
    if (some.empty()) return;
    const auto rows = run_with(some, algorithm);
    if (!rows && algorithm == "default") throw Exception(rows.error());
    for (std::size_t k = 0; rows && k < rows->size(); ++k) {
      const double time = (*rows)[k].median_us;
      double& best = fastest[indices[k]];
      if ((*rows)[k].wrong > 0 || (best > 0 && time >= best)) continue;
      best = time;
      best_[indices[k]] = algorithm;
    }
  }

  const BenchOptions& options_;
  std::string program_;
  std::vector<std::string> best_;  ///< By case.
};

void check_peers(const BenchOptions& options) {
  static constexpr std::string_view known[] = {"gloo", "mpi"};
  for (const std::string& peer : options.compare) {
    if (std::ranges::find(known, peer) != std::end(known)) continue;
    throw Exception(ErrorKind::invalid_argument,
                    unknown_name("system to compare with", peer, known));
  }
  if (options.type == "float32" && options.op == "sum") return;
  throw Exception(ErrorKind::invalid_argument,
                  "--compare measures sums of float32; leave --type and --op away");
}

void leave_out(const std::string& peer, const std::string& why) {
  fmt::print(stderr, "gradwire bench: {} is left out: {}\n", peer, why);
}

std::vector<System> systems_of(const BenchOptions& options, const Environment& environment) {
  std::vector<System> systems{gradwire_system(options)};
  for (const std::string& peer : options.compare) {
    if (peer == "gloo") {
      const std::string missing = gloo_missing(options);
      if (missing.empty()) {
        systems.push_back(gloo_system(options));
      } else {
        leave_out(peer, missing);
      }
      continue;
    }
    const auto program = build_mpi_program(options.mpirun, environment);
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

std::vector<std::vector<SystemRow>> compare(const BenchOptions& options, const Cases& cases,
                                            const Environment& environment) {
  check_peers(options);
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

}  // namespace gradwire
