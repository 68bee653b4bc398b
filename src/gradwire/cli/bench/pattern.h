#pragma once

#include <cstddef>
#include <vector>

#include "gradwire/cli/bench/collective_bench.h"

namespace gradwire {

/// Data with a known result: small integers that depend on rank and position, such that every sum
/// and product over ranks is exact in every type, in whatever order it is computed.
class BenchPattern {
 public:
  BenchPattern(const BenchCase& what, Rank rank, int ranks);

  /// Elements that go in on, and come out at, one rank.
  std::size_t input_count() const;
  std::size_t output_count() const;

  /// Sets input and output to what they are before the operation.
  void fill(std::vector<std::byte>& input, std::vector<std::byte>& output) const;

  /// Elements of the output that are not what they should be.
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
