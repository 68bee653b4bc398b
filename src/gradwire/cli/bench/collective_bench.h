#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "gradwire/base/element.h"
#include "gradwire/comm/communicator.h"
#include "gradwire/schedule/schedule.h"

namespace gradwire {

/// One case to measure.
struct BenchCase {
  Collective collective = Collective::all_reduce;
  std::size_t bytes = 0;  ///< As in nccl-tests: the larger of input and output.
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
  std::string algorithm;  ///< Algorithm used; empty where there is no choice.
  int iterations = 0;
  double median_us = 0;
  double p99_us = 0;
  /// User and system time of a rank per operation: mean over ranks and iterations.
  double cpu_seconds = 0;
  std::size_t wrong = 0;  ///< Wrong elements on all ranks together.

  /// Returns bytes / median time, in Gb/s.
  double algbw_gbps() const;
  /// Returns algbw times bus_factor(), in Gb/s.
  double busbw_gbps() const;
  /// Returns cpu_seconds per 10^9 bytes of the operation's data; 0 if it has no data.
  double cpu_seconds_per_gb() const;
};

/// Returns the share of the data that crosses each rank's link, so that busbw can be compared with
/// the link's rate. As nccl-tests defines it, with P ranks: all_reduce 2(P-1)/P; all_gather,
/// reduce_scatter, gather, scatter and all_to_all (P-1)/P; broadcast, reduce and point_to_point 1.
double bus_factor(Collective collective, int ranks);

/// Returns the collectives that can be measured. point_to_point: every rank sends to the next and
/// receives from the previous one.
std::vector<Collective> benchable_collectives();

/// Returns true if one rank is the source or destination of all data. Other ranks could then run
/// ahead of it, so that a barrier, not measured, precedes each operation.
bool is_rooted(Collective collective);

/// Measures one case. Called by all ranks together; the result is the same on all. Throws the
/// exceptions of the operations.
BenchRow measure(Communicator& communicator, const BenchCase& what);

}  // namespace gradwire
