#pragma once

#include <cstddef>
#include <vector>

#include "gradwire/cli/bench/collective_bench.h"
#include "gradwire/cli/bench/pattern.h"

namespace gradwire {

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

}  // namespace gradwire
