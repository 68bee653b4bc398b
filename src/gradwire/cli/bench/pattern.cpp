#include "gradwire/cli/bench/pattern.h"

#include <algorithm>
#include <cstring>

#include "gradwire/base/element_value.h"

namespace gradwire {
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
      total_(what.collective == Collective::barrier ? 0 : what.bytes / size_of(what.type)),
      rank_(rank),
      ranks_(ranks) {
  if (has_parts(collective_)) total_ -= total_ % static_cast<std::size_t>(ranks);
  if (collective_ == Collective::point_to_point && ranks == 1) total_ = 0;
}

std::size_t BenchPattern::part() const {
  return total_ / static_cast<std::size_t>(ranks_);
}

std::size_t BenchPattern::input_count() const {
  switch (collective_) {
    case Collective::all_gather:
    case Collective::gather:
      return part();
    case Collective::reduce_scatter:
    case Collective::scatter:
    case Collective::all_to_all:
    case Collective::point_to_point:
      return total_;
    default:
      return 0;
  }
}

std::size_t BenchPattern::output_count() const {
  const bool gets_a_part =
      collective_ == Collective::reduce_scatter || collective_ == Collective::scatter;
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
    case Collective::all_reduce:
      return reduced(i);
    case Collective::reduce:
      return rank_ == 0 ? reduced(i) : value(rank_, i);
    case Collective::reduce_scatter:
      return reduced(of_own_part(i));
    case Collective::scatter:
      return value(0, of_own_part(i));
    case Collective::all_gather:
      return value(static_cast<Rank>(i / part()), i % part());
    case Collective::gather:
      return rank_ == 0 ? value(static_cast<Rank>(i / part()), i % part()) : kUntouched;
    case Collective::all_to_all:
      return value(static_cast<Rank>(i / part()), of_own_part(i % part()));
    case Collective::point_to_point:
      return value((rank_ + ranks_ - 1) % ranks_, i);
    default:
      return value(0, i);
  }
}

bool BenchPattern::works_in_place() const {
  return collective_ == Collective::all_reduce || collective_ == Collective::reduce ||
         (collective_ == Collective::broadcast && rank_ == 0);
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

}  // namespace gradwire
