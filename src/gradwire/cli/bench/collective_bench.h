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
  int iterations = 0;     ///< 0: as many as take about a second, 5 at least.
  int warmup = 2;
};

/// One row of the table. Times are of one operation: each iteration's is that of the slowest rank.
struct BenchRow {
  BenchCase measured;
  int ranks = 1;
  std::size_t count = 0;  ///< Elements of `bytes`.
  int iterations = 0;
  double median_us = 0;
  double p99_us = 0;
  std::size_t wrong = 0;  ///< Elements that differ from the true result, on all ranks together.

  /// bytes / median time, in Gb/s.
  double algbw_gbps() const;
  /// What of it crosses each rank's link, so that it can be held against the link's rate. As
  /// nccl-tests defines it, with P ranks: all_reduce 2(P-1)/P, all_gather and reduce_scatter
  /// (P-1)/P, broadcast 1 times algbw.
  double busbw_gbps() const;
};

/// The collectives that can be measured.
std::vector<Collective> benchable_collectives();

/// Measures one case. Called by all ranks together; the result is the same on all.
/// Throws what the operations throw.
BenchRow measure(Communicator& communicator, const BenchCase& what);

/// A table for people: the head, and a line a row.
std::string table_head(const Communicator& communicator);
std::string table_line(const BenchRow& row);

/// {"rows": [...]}: bandwidths in Gb/s, times in microseconds.
std::string to_json(const std::vector<BenchRow>& rows);

}  // namespace gradwire
