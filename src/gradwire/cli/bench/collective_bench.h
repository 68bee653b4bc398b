#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "gradwire/base/element.h"
#include "gradwire/comm/communicator.h"
#include "gradwire/schedule/schedule.h"

namespace gradwire {

/// What to measure.
struct BenchCase {
  Collective collective = Collective::all_reduce;
  std::size_t bytes = 0;  ///< As in nccl-tests: of the larger of input and output.
  DataType type = DataType::float32;
  ReduceOp op = ReduceOp::sum;
  std::string algorithm;  ///< Empty: the tuner's choice.
  int segments = 0;       ///< Of each message, as OperationOptions.
  int iterations = 0;     ///< 0: as many as take `seconds`, 5 to 2000.
  double seconds = 1;
  int warmup = 2;
};

/// One row of the table. Times are of one operation: each iteration's is that of the slowest rank.
struct BenchRow {
  BenchCase measured;
  int ranks = 1;
  std::string algorithm;  ///< That was used; empty where there is no choice.
  int iterations = 0;
  double median_us = 0;
  double p99_us = 0;
  /// User and system time that a rank spends on an operation: the mean over ranks and iterations.
  double cpu_seconds = 0;
  std::size_t wrong = 0;  ///< Elements that differ from the true result, on all ranks together.

  /// bytes / median time, in Gb/s.
  double algbw_gbps() const;
  /// algbw times bus_factor().
  double busbw_gbps() const;
  /// cpu_seconds for each 10^9 bytes of the operation's data; 0 where there is none.
  double cpu_seconds_per_gb() const;
};

/// What of the data crosses each rank's link, so that bandwidths can be held against the link's
/// rate. As nccl-tests defines it, with P ranks: all_reduce 2(P-1)/P; all_gather, reduce_scatter,
/// gather, scatter and all_to_all (P-1)/P; broadcast, reduce and point_to_point 1.
double bus_factor(Collective collective, int ranks);

/// The collectives that can be measured. point_to_point: every rank sends to the next and receives
/// from the one before.
std::vector<Collective> benchable_collectives();

/// Whether one rank gives or gets everything, so that the others may run ahead of it: then a
/// barrier goes before each operation, outside the time.
bool is_rooted(Collective collective);

/// Measures one case. Called by all ranks together; the result is the same on all.
/// Throws what the operations throw.
BenchRow measure(Communicator& communicator, const BenchCase& what);

}  // namespace gradwire
