#include "gradwire/cli/bench/collective_bench.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>

#include <fmt/format.h>

#include "gradwire/base/clock.h"
#include "gradwire/base/cpu.h"
#include "gradwire/base/error.h"
#include "gradwire/base/units.h"
#include "gradwire/schedule/cost/bus_bandwidth.h"

namespace gradwire::cli {
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
  if (what.collective == schedule::Collective::point_to_point || !what.algorithm.empty())
    return what.algorithm;
  return communicator.algorithm_for(what.collective, what.bytes);
}

}  // namespace

double BenchRow::algbw_gbps() const {
  return median_us > 0 ? static_cast<double>(measured.bytes) * 8e-3 / median_us : 0;
}

double BenchRow::busbw_gbps() const {
  return algbw_gbps() * schedule::bus_factor(measured.collective, ranks);
}

double BenchRow::cpu_seconds_per_gb() const {
  return measured.bytes > 0 ? cpu_seconds * 1e9 / static_cast<double>(measured.bytes) : 0;
}

std::vector<schedule::Collective> benchable_collectives() {
  return {schedule::Collective::all_reduce,     schedule::Collective::all_gather,
          schedule::Collective::reduce_scatter, schedule::Collective::broadcast,
          schedule::Collective::reduce,         schedule::Collective::gather,
          schedule::Collective::scatter,        schedule::Collective::all_to_all,
          schedule::Collective::barrier,        schedule::Collective::point_to_point};
}

bool is_rooted(schedule::Collective collective) {
  switch (collective) {
    case schedule::Collective::broadcast:
    case schedule::Collective::reduce:
    case schedule::Collective::gather:
    case schedule::Collective::scatter:
      return true;
    default:
      return false;
  }
}

BenchRow measure(Communicator& communicator, const BenchCase& what) {
  const SteadyClock clock;
  BenchOperation operation(communicator, what);
  BenchRow row{.measured = what, .ranks = communicator.size()};
  row.engine = communicator.traits().name;
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

namespace {

/// Small enough that the sum over 64 ranks, at most 192, is exact in bfloat16 and fits into uint8.
constexpr std::size_t kValues = 4;

/// Initial value of elements that the operation overwrites; never a correct result.
constexpr double kUntouched = 99;

}  // namespace

BenchPattern::BenchPattern(const BenchCase& what, Rank rank, int ranks)
    : collective_(what.collective),
      type_(what.type),
      op_(what.op),
      total_(what.collective == schedule::Collective::barrier ? 0
                                                              : what.bytes / size_of(what.type)),
      rank_(rank),
      ranks_(ranks) {
  if (schedule::has_parts(collective_)) total_ -= total_ % static_cast<std::size_t>(ranks);
  if (collective_ == schedule::Collective::point_to_point && ranks == 1) total_ = 0;
}

std::size_t BenchPattern::part() const {
  return total_ / static_cast<std::size_t>(ranks_);
}

std::size_t BenchPattern::input_count() const {
  switch (collective_) {
    case schedule::Collective::all_gather:
    case schedule::Collective::gather:
      return part();
    case schedule::Collective::reduce_scatter:
    case schedule::Collective::scatter:
    case schedule::Collective::all_to_all:
    case schedule::Collective::point_to_point:
      return total_;
    default:
      return 0;
  }
}

std::size_t BenchPattern::output_count() const {
  const bool gets_a_part = collective_ == schedule::Collective::reduce_scatter ||
                           collective_ == schedule::Collective::scatter;
  return gets_a_part ? part() : total_;
}

double BenchPattern::value(Rank rank, std::size_t i) const {
  const std::size_t mixed = (i * 7 + static_cast<std::size_t>(rank) * 5 + i / 1021) % kValues;
  if (op_ != ReduceOp::product) return static_cast<double>(mixed);
  return rank < 3 ? static_cast<double>(1 + mixed % 2) : 1;  // A product is at most 8.
}

double BenchPattern::reduced(std::size_t i) const {
  double result = value(0, i);
  for (Rank r = 1; r < ranks_; ++r) {
    const double next = value(r, i);
    switch (op_) {
      case ReduceOp::sum:
      case ReduceOp::mean:
        result += next;
        break;
      case ReduceOp::min:
        result = std::min(result, next);
        break;
      case ReduceOp::max:
        result = std::max(result, next);
        break;
      case ReduceOp::product:
        result *= next;
        break;
      default:  // Bitwise reductions are not benchmarked.
        break;
    }
  }
  return op_ == ReduceOp::mean ? result / ranks_ : result;
}

double BenchPattern::expected(std::size_t i) const {
  const auto of_own_part = [&](std::size_t k) {
    return static_cast<std::size_t>(rank_) * part() + k;
  };
  switch (collective_) {
    case schedule::Collective::all_reduce:
      return reduced(i);
    case schedule::Collective::reduce:
      return rank_ == 0 ? reduced(i) : value(rank_, i);
    case schedule::Collective::reduce_scatter:
      return reduced(of_own_part(i));
    case schedule::Collective::scatter:
      return value(0, of_own_part(i));
    case schedule::Collective::all_gather:
      return value(static_cast<Rank>(i / part()), i % part());
    case schedule::Collective::gather:
      return rank_ == 0 ? value(static_cast<Rank>(i / part()), i % part()) : kUntouched;
    case schedule::Collective::all_to_all:
      return value(static_cast<Rank>(i / part()), of_own_part(i % part()));
    case schedule::Collective::point_to_point:
      return value((rank_ + ranks_ - 1) % ranks_, i);
    default:
      return value(0, i);
  }
}

bool BenchPattern::works_in_place() const {
  return collective_ == schedule::Collective::all_reduce ||
         collective_ == schedule::Collective::reduce ||
         (collective_ == schedule::Collective::broadcast && rank_ == 0);
}

void BenchPattern::fill(std::vector<std::byte>& input, std::vector<std::byte>& output) const {
  const std::size_t size = size_of(type_);
  for (std::size_t i = 0; i < input_count(); ++i)
    store_element(&input[i * size], type_, value(rank_, i));
  for (std::size_t i = 0; i < output_count(); ++i) {
    store_element(&output[i * size], type_, works_in_place() ? value(rank_, i) : kUntouched);
  }
}

std::size_t BenchPattern::count_wrong(const std::vector<std::byte>& output) const {
  const std::size_t size = size_of(type_);
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < output_count(); ++i) {
    std::byte right[8];
    store_element(right, type_, expected(i));
    if (std::memcmp(right, &output[i * size], size) != 0) ++wrong;
  }
  return wrong;
}

namespace {

/// Allocates a buffer of `count` elements of `type`. Throws Exception(system) if there is no
/// memory.
std::vector<std::byte> buffer(std::size_t count, DataType type, const BenchCase& what,
                              const Communicator& communicator) {
  try {
    return std::vector<std::byte>(count * size_of(type));
  } catch (const std::exception&) {  // bad_alloc, or length_error beyond max_size().
    throw Exception(ErrorKind::system,
                    fmt::format("rank {} cannot allocate a buffer of {} ({} of {}): use smaller "
                                "--sizes, or run fewer ranks per host",
                                communicator.rank(), format_bytes(count * size_of(type)),
                                name_of(what.collective), format_bytes(what.bytes)));
  }
}

}  // namespace

BenchOperation::BenchOperation(Communicator& communicator, const BenchCase& what)
    : communicator_(communicator),
      what_(what),
      pattern_(what, communicator.rank(), communicator.size()),
      input_(buffer(pattern_.input_count(), what.type, what, communicator)),
      output_(buffer(pattern_.output_count(), what.type, what, communicator)) {}

void BenchOperation::prepare() {
  if (is_rooted(what_.collective)) communicator_.barrier().wait();
}

void BenchOperation::run() {
  const OperationOptions options{
      .waits_at_once = true, .algorithm = what_.algorithm, .segments = what_.segments};
  const LentSpan out{output_.data(), pattern_.output_count(), what_.type, nullptr};
  const LentConstSpan in(input_.data(), pattern_.input_count(), what_.type);
  switch (what_.collective) {
    case schedule::Collective::all_reduce:
      return communicator_.all_reduce(out, what_.op, options).wait();
    case schedule::Collective::broadcast:
      return communicator_.broadcast(out, 0, options).wait();
    case schedule::Collective::all_gather:
      return communicator_.all_gather(in, out, options).wait();
    case schedule::Collective::reduce_scatter:
      return communicator_.reduce_scatter(in, out, what_.op, options).wait();
    case schedule::Collective::reduce:
      return communicator_.reduce(out, 0, what_.op, options).wait();
    case schedule::Collective::gather:
      return communicator_.gather(in, out, 0, options).wait();
    case schedule::Collective::scatter:
      return communicator_.scatter(in, out, 0, options).wait();
    case schedule::Collective::all_to_all:
      return communicator_.all_to_all(in, out, options).wait();
    case schedule::Collective::barrier:
      return communicator_.barrier(options).wait();
    case schedule::Collective::point_to_point:
      return exchange_with_neighbors(in, out);
  }
}

void BenchOperation::exchange_with_neighbors(const LentConstSpan& in, const LentSpan& out) {
  const int ranks = communicator_.size();
  if (ranks == 1) return;
  const Work sent = communicator_.send(in, (communicator_.rank() + 1) % ranks);
  communicator_.recv(out, (communicator_.rank() + ranks - 1) % ranks).wait();
  sent.wait();
}

std::size_t BenchOperation::count_wrong() {
  pattern_.fill(input_, output_);
  run();
  auto wrong = static_cast<std::int64_t>(pattern_.count_wrong(output_));
  communicator_.all_reduce({&wrong, 1, DataType::int64, nullptr}, ReduceOp::sum).wait();
  return static_cast<std::size_t>(wrong);
}

void BenchOperation::clear() {
  std::ranges::fill(input_, std::byte{0});
  std::ranges::fill(output_, std::byte{0});
}

}  // namespace gradwire::cli
