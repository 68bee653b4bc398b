#include <optional>
#include <vector>

#include "gradwire/schedule/algorithms/algorithms.h"
#include "gradwire/schedule/algorithms/sums.h"

/// Recursive halving: the ranks split in two halves. Each rank sends its partial sums of the other
/// half's chunks to its counterpart there. Then each half proceeds by itself with half of the
/// chunks. In the end rank r has chunk r complete. Recursive doubling takes the same steps in
/// reverse, with complete chunks. Together they are Rabenseifner's all-reduce ("Optimization of
/// collective reduction operations", ICCS 2004).
///
/// The number of ranks need not be a power of two. If the lower half has one rank more, that rank
/// has no counterpart: the last rank of the upper half receives its partial sums too. It receives
/// none itself, nor need it: together, its half has received all partial sums of the other.
///
///     0 1 2 | 3 4      0 <-> 3   1 <-> 4   2 -> 4       then  0 1 | 2   and   3 | 4
namespace gradwire::schedule {
namespace {

/// Consecutive ranks, and the chunks with the same numbers.
struct Range {
  int begin;
  int end;

  int size() const { return end - begin; }
};

/// One split, from the view of one rank.
struct Split {
  Range mine;
  Range other;
  std::vector<Rank> send_to;       ///< Receivers of this rank's sums of the other half.
  std::vector<Rank> receive_from;  ///< Senders of sums of this rank's half.
};

Split split_at(const Range& group, Rank rank) {
  const int middle = group.begin + (group.size() + 1) / 2;
  const Range lower{group.begin, middle};
  const Range upper{middle, group.end};
  const bool odd = lower.size() > upper.size();
  const Rank alone = odd ? middle - 1 : -1;
  if (rank == alone) return {lower, upper, {group.end - 1}, {}};
  const Rank counterpart = rank < middle ? rank + lower.size() : rank - lower.size();
  if (rank < middle) return {lower, upper, {counterpart}, {counterpart}};
  Split split{upper, lower, {counterpart}, {counterpart}};
  if (odd && rank == group.end - 1) split.receive_from.push_back(alone);
  return split;
}

/// All splits of a rank, from the one of all ranks to the one of two.
std::vector<Split> splits_of(int ranks, Rank rank) {
  std::vector<Split> splits;
  for (Range group{0, ranks}; group.size() > 1; group = splits.back().mine) {
    splits.push_back(split_at(group, rank));
  }
  return splits;
}

/// Leaves this rank's chunk complete in `sums`, a slice of all chunks, all of which it may
/// overwrite. Returns the op that completes the chunk.
OpIndex halve(ProgramBuilder& builder, const std::vector<Split>& splits, int ranks, Slice sums) {
  std::optional<OpIndex> last;  // Made the partial sums; none yet: they are the input.
  for (const Split& split : splits) {
    const Slice theirs = last ? part_of(sums, split.other.begin, split.other.size())
                              : input(split.other.begin, split.other.size());
    const Slice mine = part_of(sums, split.mine.begin, split.mine.size());
    const Slice brought = input(split.mine.begin, split.mine.size());
    std::vector<OpIndex> before;
    if (last) before = {*last};
    for (Rank peer : split.send_to) builder.send(peer, theirs, before);
    for (Rank peer : split.receive_from) {
      if (!last) {
        last = builder.recv_reduce(peer, mine, brought, OperandOrder::local_first);
        continue;
      }
      // The peer may be a round ahead, so its sums wait in scratch for this rank's own.
      const Slice held = builder.scratch(static_cast<std::uint32_t>(split.mine.begin),
                                         static_cast<std::uint32_t>(split.mine.size()));
      const OpIndex arrived = builder.recv(peer, held);
      last = builder.reduce(mine, held, OperandOrder::local_first, {*last, arrived});
    }
    if (!last) last = builder.copy(mine, brought);
  }
  if (!last) last = builder.copy(sums, input(0, ranks));
  return *last;
}

/// Sends this rank's chunk of the output, complete after op `ready`, and collects all others.
void double_back(ProgramBuilder& builder, const std::vector<Split>& splits, OpIndex ready) {
  std::vector<OpIndex> there{ready};
  for (auto split = splits.rbegin(); split != splits.rend(); ++split) {
    const Slice mine = output(split->mine.begin, split->mine.size());
    const Slice theirs = output(split->other.begin, split->other.size());
    // The direction is reversed: senders of sums receive the chunks, and vice versa.
    for (Rank peer : split->receive_from) builder.send(peer, mine, there);
    for (Rank peer : split->send_to) there.push_back(builder.recv(peer, theirs));
  }
}

Program all_reduce_program(int ranks, Rank rank) {
  ProgramBuilder builder;
  const std::vector<Split> splits = splits_of(ranks, rank);
  const OpIndex complete = halve(builder, splits, ranks, output(0, ranks));
  builder.postscale(complete);
  double_back(builder, splits, complete);
  return std::move(builder).build();
}

Program reduce_scatter_program(int ranks, Rank rank) {
  ProgramBuilder builder;
  if (ranks == 1) {
    builder.postscale(builder.copy(output(0), input(0)));
    return std::move(builder).build();
  }
  const std::vector<Split> splits = splits_of(ranks, rank);
  const Slice sums = builder.scratch(0, static_cast<std::uint32_t>(ranks));
  const OpIndex complete = halve(builder, splits, ranks, sums);
  builder.postscale(builder.copy(output(0), part_of(sums, rank), {complete}));
  return std::move(builder).build();
}

Program all_gather_program(int ranks, Rank rank) {
  ProgramBuilder builder;
  const OpIndex mine = builder.copy(output(rank), input(0));
  double_back(builder, splits_of(ranks, rank), mine);
  return std::move(builder).build();
}

Schedule schedule_of(Collective collective, int ranks, Program (*program)(int, Rank),
                     const char* name) {
  return {.spec = {collective},
          .ranks = ranks,
          .chunks = static_cast<std::uint32_t>(ranks),
          .program = [ranks, program](Rank rank) { return program(ranks, rank); },
          .name = name,
          .sequential_peers = true};
}

}  // namespace

Schedule halving_doubling_all_reduce(const topology::Topology& topology) {
  return schedule_of(Collective::all_reduce, topology.ranks(), all_reduce_program,
                     "halving_doubling");
}

Schedule recursive_halving_reduce_scatter(const topology::Topology& topology) {
  return schedule_of(Collective::reduce_scatter, topology.ranks(), reduce_scatter_program,
                     "recursive_halving");
}

Schedule recursive_doubling_all_gather(const topology::Topology& topology) {
  return schedule_of(Collective::all_gather, topology.ranks(), all_gather_program,
                     "recursive_doubling");
}

}  // namespace gradwire::schedule
