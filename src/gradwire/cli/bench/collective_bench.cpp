#include "gradwire/cli/bench/collective_bench.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "gradwire/base/clock.h"
#include "gradwire/cli/bench/pattern.h"

namespace gradwire {
namespace {

constexpr double kTargetSeconds = 1.0;
constexpr int kLeastIterations = 5;
constexpr int kMostIterations = 2000;

/// The buffers of one case and the operation on them.
class Runner {
 public:
  Runner(Communicator& communicator, const BenchCase& what)
      : communicator_(communicator),
        what_(what),
        pattern_(what, communicator.rank(), communicator.size()),
        input_(pattern_.input_count() * size_of(what.type)),
        output_(pattern_.output_count() * size_of(what.type)) {}

  void run() {
    const OperationOptions options{.algorithm = what_.algorithm};
    const LentSpan out{output_.data(), pattern_.output_count(), what_.type, nullptr};
    const LentConstSpan in(input_.data(), pattern_.input_count(), what_.type);
    switch (what_.collective) {
      case Collective::all_reduce:
        communicator_.all_reduce(out, what_.op, options).wait();
        break;
      case Collective::broadcast:
        communicator_.broadcast(out, 0, options).wait();
        break;
      case Collective::all_gather:
        communicator_.all_gather(in, out, options).wait();
        break;
      case Collective::reduce_scatter:
        communicator_.reduce_scatter(in, out, what_.op, options).wait();
        break;
      case Collective::barrier:
      case Collective::point_to_point:
        communicator_.barrier(options).wait();
        break;
    }
  }

  /// Runs once on known data and counts what came out wrong, on all ranks together.
  std::size_t count_wrong() {
    pattern_.fill(input_, output_);
    run();
    std::int64_t wrong = static_cast<std::int64_t>(pattern_.count_wrong(output_));
    communicator_.all_reduce({&wrong, 1, DataType::int64, nullptr}, ReduceOp::sum).wait();
    return static_cast<std::size_t>(wrong);
  }

  /// Zeros stay zeros however often they are reduced; anything else would overflow.
  void clear() {
    std::ranges::fill(input_, std::byte{0});
    std::ranges::fill(output_, std::byte{0});
  }

 private:
  Communicator& communicator_;
  const BenchCase& what_;
  BenchPattern pattern_;
  std::vector<std::byte> input_;
  std::vector<std::byte> output_;
};

double seconds_of(Runner& runner, const Clock& clock) {
  const Time start = clock.now();
  runner.run();
  return std::chrono::duration<double>(clock.now() - start).count();
}

/// All ranks take rank 0's number.
int agree_on_iterations(Communicator& communicator, const BenchCase& what, double once) {
  double wanted = what.iterations;
  if (what.iterations <= 0) {
    wanted = std::clamp(std::floor(kTargetSeconds / once), double{kLeastIterations},
                        double{kMostIterations});
  }
  communicator.broadcast({&wanted, 1, DataType::float64, nullptr}, 0).wait();
  return static_cast<int>(wanted);
}

double quantile(std::vector<double>& sorted, double q) {
  const auto last = static_cast<double>(sorted.size() - 1);
  return sorted[static_cast<std::size_t>(std::ceil(q * last))];
}

double bus_factor(Collective collective, int ranks) {
  const double p = ranks;
  switch (collective) {
    case Collective::all_reduce:
      return 2 * (p - 1) / p;
    case Collective::all_gather:
    case Collective::reduce_scatter:
      return (p - 1) / p;
    case Collective::broadcast:
    case Collective::barrier:
    case Collective::point_to_point:
      return 1;
  }
  return 1;
}

}  // namespace

double BenchRow::algbw_gbps() const {
  return median_us > 0 ? static_cast<double>(measured.bytes) * 8e-3 / median_us : 0;
}

double BenchRow::busbw_gbps() const {
  return algbw_gbps() * bus_factor(measured.collective, ranks);
}

std::vector<Collective> benchable_collectives() {
  return {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter,
          Collective::broadcast, Collective::barrier};
}

BenchRow measure(Communicator& communicator, const BenchCase& what) {
  const SteadyClock clock;
  Runner runner(communicator, what);
  BenchRow row{.measured = what, .ranks = communicator.size()};
  row.count = what.bytes / size_of(what.type);
  row.wrong = runner.count_wrong();
  runner.clear();
  double once = 1;
  for (int i = 0; i < std::max(what.warmup, 1); ++i) once = seconds_of(runner, clock);
  row.iterations = agree_on_iterations(communicator, what, once);
  std::vector<double> times;
  times.reserve(static_cast<std::size_t>(row.iterations));
  communicator.barrier().wait();
  for (int i = 0; i < row.iterations; ++i) times.push_back(seconds_of(runner, clock));
  communicator.all_reduce({times.data(), times.size(), DataType::float64, nullptr}, ReduceOp::max)
      .wait();
  row.wrong += runner.count_wrong();
  std::ranges::sort(times);
  row.median_us = quantile(times, 0.5) * 1e6;
  row.p99_us = quantile(times, 0.99) * 1e6;
  return row;
}

}  // namespace gradwire
