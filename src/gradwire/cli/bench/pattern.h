#pragma once

#include <cstddef>
#include <vector>

#include "gradwire/cli/bench/collective_bench.h"

namespace gradwire {

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

  Collective collective_;
  DataType type_;
  ReduceOp op_;
  std::size_t total_;
  Rank rank_;
  int ranks_;
};

}  // namespace gradwire
