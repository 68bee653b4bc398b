#pragma once

#include <cstddef>
#include <vector>

#include "gradwire/cli/bench/collective_bench.h"
#include "gradwire/cli/bench/pattern.h"

namespace gradwire {

/// The buffers of one case on one rank, and the operation on them.
class BenchOperation {
 public:
  /// Both arguments must live as long as this.
  BenchOperation(Communicator& communicator, const BenchCase& what);

  /// What goes before the operation and is not measured.
  void prepare();
  /// Does the operation once, to its end on this rank.
  void run();

  /// Runs once on known data and counts what came out wrong, on all ranks together.
  std::size_t count_wrong();

  /// Zeros stay zeros however often they are reduced; anything else would overflow.
  void clear();

 private:
  void exchange_with_neighbours(const LentConstSpan& in, const LentSpan& out);

  Communicator& communicator_;
  const BenchCase& what_;
  BenchPattern pattern_;
  std::vector<std::byte> input_;
  std::vector<std::byte> output_;
};

}  // namespace gradwire
