#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "gradwire/base/types.h"
#include "gradwire/schedule/schedule.h"

namespace gradwire::schedule::proof {

/// Whether the caller passes the same memory as input and output.
enum class Aliasing : std::uint8_t { separate, in_place };

/// The aliasings that a collective allows.
std::vector<Aliasing> aliasings(Collective collective);

/// The memory of a slice: for in-place all_reduce, and on the root of in-place reduce, input[c] is
/// output[c]. For in-place all_gather, rank r's input[0] is its output[r].
Slice place_of(const Schedule& schedule, Rank rank, const Slice& slice, Aliasing aliasing);

/// Returns true if an op copies a slice onto itself, which does nothing.
bool stays_in_place(const Schedule& schedule, Rank rank, const Op& op, Aliasing aliasing);

/// Index of an expression in its pool. Equal expressions have equal ids, so comparing whole trees
/// means comparing two integers.
using ExpressionId = std::uint32_t;

/// Uninitialized memory.
inline constexpr ExpressionId kUndefined = 0;

enum class ExpressionKind : std::uint8_t { undefined, leaf, sum, postscaled };

struct Expression {
  ExpressionKind kind = ExpressionKind::undefined;
  std::uint32_t a = 0;  ///< leaf: rank; sum: left operand; postscaled: operand.
  std::uint32_t b = 0;  ///< leaf: chunk; sum: right operand.
};

/// Expression trees, each stored once (hash-consing: Ershov, CACM 1(8), 1958).
class ExpressionPool {
 public:
  ExpressionPool() { nodes_.emplace_back(); }

  /// Rank `rank`'s contribution to chunk `chunk`.
  ExpressionId leaf(Rank rank, std::uint32_t chunk);

  /// left + right, in that order: neither commutative nor associative, like floating-point
  /// addition.
  ExpressionId sum(ExpressionId left, ExpressionId right);

  /// Op::postscale applied to a reduction.
  ExpressionId postscaled(ExpressionId operand);

  const Expression& operator[](ExpressionId id) const { return nodes_[id]; }

  /// "finish ((r0[2] + r1[2]) + r2[2])", truncated after about `limit` characters.
  std::string to_string(ExpressionId id, std::size_t limit = 120) const;

 private:
  ExpressionId intern(ExpressionKind kind, std::uint32_t a, std::uint32_t b);
  void write(ExpressionId id, std::size_t limit, std::string& text) const;

  std::vector<Expression> nodes_;
  std::unordered_map<std::uint64_t, ExpressionId> known_;
};

/// Returns why `id` is not finish(sum of all ranks' `chunk`, each exactly once); empty if it is.
std::string why_not_complete(const ExpressionPool& pool, ExpressionId id, std::uint32_t chunk,
                             int ranks);

}  // namespace gradwire::schedule::proof
