#include "gradwire/cli/bench/collective_bench.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>

#include "gradwire/base/clock.h"
#include "gradwire/base/cpu_time.h"
#include "gradwire/cli/bench/bench_operation.h"

namespace gradwire {
namespace {

constexpr int kMinIterations = 5;
constexpr int kMaxIterations = 2000;

double seconds_of(BenchOperation& operation, const Clock& clock) {
  operation.prepare();
  const Time start = clock.now();
  operation.run();
  return std::chrono::duration<double>(clock.now() - start).count();
}

/// Returns the number of iterations; rank 0 decides, as all ranks need the same.
int agree_on_iterations(Communicator& communicator, const BenchCase& what, double once) {
  double wanted = what.iterations;
  if (what.iterations <= 0) {
    wanted =
        std::clamp(std::floor(what.seconds / once), double{kMinIterations}, double{kMaxIterations});
  }
  communicator.broadcast({&wanted, 1, DataType::float64, nullptr}, 0).wait();
  return static_cast<int>(wanted);
}

double quantile(const std::vector<double>& sorted, double q) {
  const auto last = static_cast<double>(sorted.size() - 1);
  return sorted[static_cast<std::size_t>(std::ceil(q * last))];
}

/// Fills in the row's figures, the same on all ranks.
void time_iterations(Communicator& communicator, BenchOperation& operation, const Clock& clock,
                     BenchRow& row) {
  std::vector<double> times;
  times.reserve(static_cast<std::size_t>(row.iterations));
  communicator.barrier().wait();
  const double used = cpu_seconds_used();
  for (int i = 0; i < row.iterations; ++i) times.push_back(seconds_of(operation, clock));
  row.cpu_seconds = (cpu_seconds_used() - used) / row.iterations;
  communicator.all_reduce({&row.cpu_seconds, 1, DataType::float64, nullptr}, ReduceOp::mean).wait();
  std::ranges::sort(times);
  // The maximum of the ranks' medians, not the median of each operation's maximum: that would
  // include drift between ranks, as an early rank waits for a late one.
  std::array figures{quantile(times, 0.5), quantile(times, 0.99)};
  communicator
      .all_reduce({figures.data(), figures.size(), DataType::float64, nullptr}, ReduceOp::max)
      .wait();
  row.median_us = figures[0] * 1e6;
  row.p99_us = figures[1] * 1e6;
}

std::string algorithm_of(Communicator& communicator, const BenchCase& what) {
  // A message between two ranks has no choice of algorithm.
  if (what.collective == Collective::point_to_point || !what.algorithm.empty())
    return what.algorithm;
  return communicator.algorithm_for(what.collective, what.bytes);
}

}  // namespace

double bus_factor(Collective collective, int ranks) {
  const double p = ranks;
  if (collective == Collective::all_reduce) return 2 * (p - 1) / p;
  return has_parts(collective) ? (p - 1) / p : 1;
}

double BenchRow::algbw_gbps() const {
  return median_us > 0 ? static_cast<double>(measured.bytes) * 8e-3 / median_us : 0;
}

double BenchRow::busbw_gbps() const {
  return algbw_gbps() * bus_factor(measured.collective, ranks);
}

double BenchRow::cpu_seconds_per_gb() const {
  return measured.bytes > 0 ? cpu_seconds * 1e9 / static_cast<double>(measured.bytes) : 0;
}

std::vector<Collective> benchable_collectives() {
  return {Collective::all_reduce,    Collective::all_gather, Collective::reduce_scatter,
          Collective::broadcast,     Collective::reduce,     Collective::gather,
          Collective::scatter,       Collective::all_to_all, Collective::barrier,
          Collective::point_to_point};
}

bool is_rooted(Collective collective) {
  switch (collective) {
    case Collective::broadcast:
    case Collective::reduce:
    case Collective::gather:
    case Collective::scatter:
      return true;
    default:
      return false;
  }
}

BenchRow measure(Communicator& communicator, const BenchCase& what) {
  const SteadyClock clock;
  BenchOperation operation(communicator, what);
  BenchRow row{.measured = what, .ranks = communicator.size()};
  row.algorithm = algorithm_of(communicator, what);
  row.wrong = operation.count_wrong();
  operation.clear();
  double once = 1;
  for (int i = 0; i < std::max(what.warmup, 1); ++i) once = seconds_of(operation, clock);
  row.iterations = agree_on_iterations(communicator, what, once);
  time_iterations(communicator, operation, clock, row);
  row.wrong += operation.count_wrong();
  return row;
}

}  // namespace gradwire
