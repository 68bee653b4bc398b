#include <bit>

#include "gradwire/schedule/algorithms/algorithms.h"

/// Recursive doubling, also called butterfly. In round k every member exchanges its whole partial
/// sum with the member at distance 2^k. Both then hold the sum of a group twice as large:
///
///     round 0: (0 1) (2 3) (4 5) (6 7)     round 1: (0 1 2 3) (4 5 6 7)     round 2: all
///
/// Both members of a pair compute the same sum. To get the same bits, both put the lower group's
/// operand on the left.
///
/// This requires a power of two. With E ranks beyond it, the first 2E ranks form pairs: the odd
/// rank of a pair sends its input to the even one, which takes part for both and returns the
/// result.
namespace gradwire::schedule {
namespace {

constexpr Slice kInput{Buffer::input, 0, 1};
constexpr Slice kOutput{Buffer::output, 0, 1};

struct Groups {
  int members;  ///< The largest power of two not above the number of ranks.
  int extra;    ///< Ranks beyond it.

  explicit Groups(int ranks)
      : members(static_cast<int>(std::bit_floor(static_cast<unsigned>(ranks)))),
        extra(ranks - members) {}

  bool is_extra(Rank rank) const { return rank < 2 * extra && rank % 2 == 1; }
  bool has_extra(Rank rank) const { return rank < 2 * extra && rank % 2 == 0; }
  int member(Rank rank) const { return rank < 2 * extra ? rank / 2 : rank - extra; }
  Rank rank_of(int member) const { return member < extra ? 2 * member : member + extra; }
};

Program extra_program(Rank rank) {
  ProgramBuilder builder;
  builder.send(rank - 1, kInput);
  builder.recv(rank - 1, kOutput);
  return std::move(builder).build();
}

Program member_program(const Groups& groups, Rank rank) {
  ProgramBuilder builder;
  const bool has_extra = groups.has_extra(rank);
  OpIndex sum = has_extra
                    ? builder.recv_reduce(rank + 1, kOutput, kInput, OperandOrder::local_first)
                    : builder.copy(kOutput, kInput);
  const int member = groups.member(rank);
  for (int distance = 1; distance < groups.members; distance *= 2) {
    const Rank partner = groups.rank_of(member ^ distance);
    const OpIndex sent = builder.send(partner, kOutput, {sum});
    // The partner may be a round ahead, so its sum waits in scratch for this rank's own.
    const Slice theirs = builder.scratch(0);
    const OpIndex arrived = builder.recv(partner, theirs);
    const OperandOrder order =
        partner > rank ? OperandOrder::local_first : OperandOrder::incoming_first;
    // Not before `sent`: data in flight must not change.
    sum = builder.reduce(kOutput, theirs, order, {sum, arrived, sent});
  }
  builder.postscale(sum);
  if (has_extra) builder.send(rank + 1, kOutput, {sum});
  return std::move(builder).build();
}

}  // namespace

Schedule recursive_doubling_all_reduce(const topology::Topology& topology) {
  const Groups groups(topology.ranks());
  return {.spec = {Collective::all_reduce},
          .ranks = topology.ranks(),
          .chunks = 1,
          .program =
              [groups](Rank rank) {
                return groups.is_extra(rank) ? extra_program(rank) : member_program(groups, rank);
              },
          .name = "recursive_doubling",
          .sequential_peers = true};
}

}  // namespace gradwire::schedule
