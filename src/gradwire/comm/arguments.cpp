#include "gradwire/comm/arguments.h"

#include <numeric>
#include <vector>

#include <fmt/format.h>

#include "gradwire/base/refuse.h"
#include "gradwire/base/tags.h"

namespace gradwire {

void check_rank(Rank rank, int ranks, std::string_view what) {
  if (rank >= 0 && rank < ranks) return;
  refuse("invalid {} rank: {}; ranks are 0 to {}", what, rank, ranks - 1);
}

void check_message(Rank peer, int ranks, int tag) {
  check_rank(peer, ranks, "peer");
  check_tag(tag);
}

Rank check_subgroup(std::span<const Rank> ranks, Rank self, int size) {
  std::vector<bool> seen(static_cast<std::size_t>(size));
  Rank place = -1;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    check_rank(ranks[i], size, "subgroup");
    if (seen[static_cast<std::size_t>(ranks[i])])
      refuse("rank {} is twice in a subgroup", ranks[i]);
    seen[static_cast<std::size_t>(ranks[i])] = true;
    if (ranks[i] == self) place = static_cast<Rank>(i);
  }
  if (place < 0) refuse("rank {} is not in the subgroup that it makes", self);
  return place;
}

void check_tag(int tag) {
  if (tag < 0 || tag > kMaxTag) refuse("tag {} is not within 0 to {}", tag, kMaxTag);
}

void check_lane(int lane) {
  if (lane < 0 || lane > kMaxLane) refuse("lane {} is not within 0 to {}", lane, kMaxLane);
}

void check_domain(FailureDomain domain, std::string_view operation) {
  if (domain == FailureDomain::job) return;
  throw Exception(ErrorKind::unsupported,
                  fmt::format("{} over a communicator of pairs, which has messages only: a rank "
                              "that is lost would leave the others waiting; use a communicator "
                              "with FailureDomain::job",
                              operation));
}

void check_parts(std::string_view operation, int ranks, std::size_t part, DataType part_type,
                 std::size_t whole, DataType whole_type) {
  if (part_type == whole_type && whole == part * static_cast<std::size_t>(ranks)) return;
  refuse(
      "{} over {} ranks needs one side {} times as large as the other, of the same type; got {} "
      "{} and {} {}",
      operation, ranks, ranks, part, name_of(part_type), whole, name_of(whole_type));
}

void check_splits(std::string_view side, int ranks, std::span<const std::size_t> counts,
                  std::size_t count) {
  if (counts.size() != static_cast<std::size_t>(ranks)) {
    refuse("all_to_all over {} ranks needs {} {} counts, got {}", ranks, ranks, side,
           counts.size());
  }
  const std::size_t sum = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
  if (sum != count) {
    refuse("the {} counts of all_to_all add up to {}, but the {} has {} elements", side, sum, side,
           count);
  }
}

void check_reduction(DataType type, ReduceOp op) {
  if (!combines(type, op)) refuse("{} needs integer elements, got {}", name_of(op), name_of(type));
}

void check_same_type(std::string_view operation, DataType input, DataType output) {
  if (input == output) return;
  refuse("{} needs input and output of the same type, got {} and {}", operation, name_of(input),
         name_of(output));
}

}  // namespace gradwire
