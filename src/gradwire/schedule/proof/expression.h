#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "gradwire/base/types.h"

namespace gradwire::proof {

/// Names an expression in its pool. Equal expressions have equal names, so comparing whole trees is
/// comparing two numbers.
using ExpressionId = std::uint32_t;

/// What memory holds before anything is written to it.
inline constexpr ExpressionId kUndefined = 0;

enum class ExpressionKind : std::uint8_t { undefined, leaf, sum, finished };

struct Expression {
  ExpressionKind kind = ExpressionKind::undefined;
  std::uint32_t a = 0;  ///< leaf: rank; sum: left operand; finished: operand.
  std::uint32_t b = 0;  ///< leaf: chunk; sum: right operand.
};

/// Expression trees, each kept once (hash-consing: Ershov, CACM 1(8), 1958).
class ExpressionPool {
 public:
  ExpressionPool() { nodes_.emplace_back(); }

  /// What rank `rank` contributes as its chunk `chunk`.
  ExpressionId leaf(Rank rank, std::uint32_t chunk);

  /// left + right, in that order: neither commutative nor associative, as floating point is not.
  ExpressionId sum(ExpressionId left, ExpressionId right);

  /// What Op::finish makes of a complete reduction.
  ExpressionId finished(ExpressionId operand);

  const Expression& operator[](ExpressionId id) const { return nodes_[id]; }

  /// "finish((r0[2] + r1[2]) + r2[2])", cut off after about `limit` characters.
  std::string to_string(ExpressionId id, std::size_t limit = 120) const;

 private:
  ExpressionId intern(ExpressionKind kind, std::uint32_t a, std::uint32_t b);
  void write(ExpressionId id, std::size_t limit, std::string& text) const;

  std::vector<Expression> nodes_;
  std::unordered_map<std::uint64_t, ExpressionId> known_;
};

/// What keeps `id` from being finish(sum of every rank's `chunk`, each exactly once); empty if
/// nothing does.
std::string why_not_complete(const ExpressionPool& pool, ExpressionId id, std::uint32_t chunk,
                             int ranks);

}  // namespace gradwire::proof
