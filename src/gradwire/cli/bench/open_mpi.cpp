#include "gradwire/cli/bench/open_mpi.h"

#include <map>

#include "gradwire/cli/launch/process.h"

namespace gradwire {
namespace {

/// Up to this size Open MPI's algorithms are tried for kTrialSeconds, above it for
/// kTrialIterations.
constexpr std::size_t kQuickBytes = 4 << 20;
constexpr double kTrialSeconds = 0.1;
constexpr int kTrialIterations = 2;
constexpr Duration kTrialLimit = std::chrono::minutes(5);

}  // namespace

Rows OpenMpi::measure(const Cases& cases) {
  if (best_.empty()) find_best(cases);
  std::map<std::string, std::vector<std::size_t>> by_algorithm;
  for (std::size_t i = 0; i < cases.size(); ++i) by_algorithm[best_[i]].push_back(i);
  Rows rows(cases.size());
  for (const auto& [algorithm, indices] : by_algorithm) {
    Cases some;
    for (std::size_t i : indices) some.push_back(cases[i]);
    const Rows measured = value_or_throw(run_peer(command(some, algorithm), some));
    for (std::size_t k = 0; k < indices.size(); ++k) {
      rows[indices[k]] = measured[k];
      rows[indices[k]].algorithm = algorithm;
    }
  }
  return rows;
}

Words OpenMpi::command(const Cases& cases, const std::string& algorithm) const {
  return mpi_command(options_, cases, own_executable(), benchmark_, algorithm);
}

void OpenMpi::find_best(const Cases& cases) {
  best_.assign(cases.size(), "default");
  std::vector<double> fastest(cases.size(), 0);
  for (const std::string& algorithm : mpi_algorithms(cases.front().collective)) {
    for (const bool quick : {true, false}) try_out(cases, quick, algorithm, fastest);
  }
}

/// An algorithm other than "default" may fail with this number of ranks; it is then skipped.
void OpenMpi::try_out(const Cases& cases, bool quick, const std::string& algorithm,
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
  const auto rows = run_peer(command(some, algorithm), some, kTrialLimit);
  if (!rows && algorithm == "default") throw Exception(rows.error());
  for (std::size_t k = 0; rows && k < rows->size(); ++k) {
    const double time = (*rows)[k].median_us;
    double& best = fastest[indices[k]];
    if ((*rows)[k].wrong > 0 || (best > 0 && time >= best)) continue;
    best = time;
    best_[indices[k]] = algorithm;
  }
}

}  // namespace gradwire
