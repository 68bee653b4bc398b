#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "gradwire/base/element.h"
#include "gradwire/comm/communicator.h"
#include "gradwire/schedule/schedule.h"

namespace gradwire::cli {

/// One case to measure.
struct BenchCase {
  schedule::Collective collective = schedule::Collective::all_reduce;
  std::size_t bytes = 0;  ///< Size as in nccl-tests: the larger of input and output.
  DataType type = DataType::float32;
  ReduceOp op = ReduceOp::sum;
  std::string algorithm;  ///< Empty: the tuner's choice.
  int segments = 0;       ///< Segments per message, as in OperationOptions.
  int iterations = 0;     ///< 0: as many as take `seconds`, 5 to 2000.
  double seconds = 1;
  int warmup = 2;
};

/// One row of the table. Times are of one operation on the slowest rank.
struct BenchRow {
  BenchCase measured;
  int ranks = 1;
  std::string engine;     ///< EngineTraits::name; empty for a peer.
  std::string algorithm;  ///< Algorithm used; empty where there is no choice.
  int iterations = 0;
  double median_us = 0;
  double p99_us = 0;
  /// User and system time of a rank per operation: mean over ranks and iterations.
  double cpu_seconds = 0;
  std::size_t wrong = 0;  ///< Wrong elements on all ranks together.

  /// Returns bytes / median time, in Gb/s.
  double algbw_gbps() const;
  /// Returns algbw times schedule::bus_factor(), in Gb/s.
  double busbw_gbps() const;
  /// Returns cpu_seconds per 10^9 bytes of the operation's data; 0 if it has no data.
  double cpu_seconds_per_gb() const;
};

/// Returns the collectives that can be measured. point_to_point: every rank sends to the next and
/// receives from the previous one.
std::vector<schedule::Collective> benchable_collectives();

/// Returns true if one rank is the source or destination of all data. Other ranks could then run
/// ahead of it, so that a barrier, not measured, precedes each operation.
bool is_rooted(schedule::Collective collective);

/// Measures one case. Called by all ranks together; the result is the same on all. Throws the
/// exceptions of the operations.
BenchRow measure(Communicator& communicator, const BenchCase& what);

/// Data with a known result: small integers that depend on rank and position. Every sum and product
/// over ranks is exact in every type, in any order of evaluation.
class BenchPattern {
 public:
  BenchPattern(const BenchCase& what, Rank rank, int ranks);

  /// Number of input and output elements of one rank.
  std::size_t input_count() const;
  std::size_t output_count() const;

  /// Sets input and output to their state before the operation.
  void fill(std::vector<std::byte>& input, std::vector<std::byte>& output) const;

  /// Returns the number of output elements that differ from the expected result.
  std::size_t count_wrong(const std::vector<std::byte>& output) const;

 private:
  double value(Rank rank, std::size_t i) const;
  double reduced(std::size_t i) const;
  double expected(std::size_t i) const;
  bool works_in_place() const;
  std::size_t part() const;

  schedule::Collective collective_;
  DataType type_;
  ReduceOp op_;
  std::size_t total_;
  Rank rank_;
  int ranks_;
};

/// The buffers of one case on one rank, and the operation on them.
class BenchOperation {
 public:
  /// Both arguments must outlive this object.
  BenchOperation(Communicator& communicator, const BenchCase& what);

  /// Barrier before a rooted operation; not measured.
  void prepare();
  /// Runs the operation once and waits until it completes on this rank.
  void run();

  /// Runs once on known data; returns the number of wrong output elements on all ranks together.
  std::size_t count_wrong();

  /// Zeroes the buffers: zeros can be reduced any number of times without overflow.
  void clear();

 private:
  void exchange_with_neighbors(const LentConstSpan& in, const LentSpan& out);

  Communicator& communicator_;
  const BenchCase& what_;
  BenchPattern pattern_;
  std::vector<std::byte> input_;
  std::vector<std::byte> output_;
};

}  // namespace gradwire::cli
