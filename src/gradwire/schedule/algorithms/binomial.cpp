#include <algorithm>
#include <utility>
#include <vector>

#include "gradwire/schedule/algorithms/algorithms.h"
#include "gradwire/schedule/algorithms/sums.h"

/// The binomial tree. The root has place 0; place p has its children at p + 1, p + 2, p + 4, ...,
/// below the lowest set bit of p. Its subtree is a range of consecutive places that starts at p.
/// Each rank that has the data sends it on, first to its largest subtree: ceil(log2 P) rounds.
namespace gradwire::schedule {
namespace {

/// Chunks that are consecutive both in the tree and in the data.
struct Run {
  int chunk;
  int count;
};

class Place {
 public:
  Place(Rank rank, int ranks, Rank root)
      : ranks_(ranks), root_(root), place_((rank - root + ranks) % ranks) {}

  bool is_root() const { return place_ == 0; }
  bool is_leaf() const { return place_ % 2 == 1 || place_ + 1 == ranks_; }
  Rank rank() const { return rank_at(place_); }
  Rank parent() const { return rank_at(place_ & (place_ - 1)); }

  /// Largest subtree first.
  std::vector<Place> children() const {
    std::vector<Place> found;
    for (int step = 1; step < span() && place_ + step < ranks_; step *= 2) {
      found.insert(found.begin(), Place(rank_at(place_ + step), ranks_, root_));
    }
    return found;
  }

  /// The ranks of this subtree as chunks: two runs if rank numbers wrap around to 0.
  std::vector<Run> subtree() const {
    const int count = std::min(span(), ranks_ - place_);
    const int before_wrap = std::min(count, ranks_ - rank());
    if (before_wrap == count) return {{rank(), count}};
    return {{rank(), before_wrap}, {0, count - before_wrap}};
  }

 private:
  /// Size of its subtree, itself included, in a complete tree.
  int span() const { return is_root() ? ranks_ : place_ & -place_; }
  Rank rank_at(int place) const { return (place + root_) % ranks_; }

  int ranks_;
  Rank root_;
  int place_;
};

/// A rank's memory for its subtree's chunks: the whole buffer on the root, scratch elsewhere.
class Parts {
 public:
  Parts(ProgramBuilder& builder, const Place& place, Buffer at_root) : root_buffer_(at_root) {
    if (place.is_root()) return;
    for (const Run& run : place.subtree()) {
      const Slice slots = builder.scratch(static_cast<std::uint32_t>(run.chunk),
                                          static_cast<std::uint32_t>(run.count));
      held_.push_back({run, slots});
    }
  }

  Slice at(const Run& wanted) const {
    for (const auto& [run, slots] : held_) {
      if (wanted.chunk < run.chunk || wanted.chunk >= run.chunk + run.count) continue;
      return part_of(slots, wanted.chunk - run.chunk, wanted.count);
    }
    return part_of({root_buffer_, 0, 0}, wanted.chunk, wanted.count);
  }

 private:
  Buffer root_buffer_;
  std::vector<std::pair<Run, Slice>> held_;
};

Program broadcast_program(int ranks, Rank rank, Rank root) {
  ProgramBuilder builder;
  const Place place(rank, ranks, root);
  std::vector<OpIndex> ready;
  if (!place.is_root()) ready = {builder.recv(place.parent(), output(0))};
  for (const Place& child : place.children()) builder.send(child.rank(), output(0), ready);
  return std::move(builder).build();
}

Program gather_program(int ranks, Rank rank, Rank root) {
  ProgramBuilder builder;
  const Place place(rank, ranks, root);
  if (!place.is_root() && place.is_leaf()) {
    builder.send(place.parent(), input(0));
    return std::move(builder).build();
  }
  const Parts parts(builder, place, Buffer::output);
  std::vector<OpIndex> there = {builder.copy(parts.at({rank, 1}), input(0))};
  for (const Place& child : place.children()) {
    for (const Run& run : child.subtree()) {
      there.push_back(builder.recv(child.rank(), parts.at(run)));
    }
  }
  if (place.is_root()) return std::move(builder).build();
  for (const Run& run : place.subtree()) builder.send(place.parent(), parts.at(run), there);
  return std::move(builder).build();
}

Program scatter_program(int ranks, Rank rank, Rank root) {
  ProgramBuilder builder;
  const Place place(rank, ranks, root);
  if (!place.is_root() && place.is_leaf()) {
    builder.recv(place.parent(), output(0));
    return std::move(builder).build();
  }
  const Parts parts(builder, place, Buffer::input);
  std::vector<OpIndex> there;
  if (!place.is_root()) {
    for (const Run& run : place.subtree()) {
      there.push_back(builder.recv(place.parent(), parts.at(run)));
    }
  }
  for (const Place& child : place.children()) {
    for (const Run& run : child.subtree()) builder.send(child.rank(), parts.at(run), there);
  }
  builder.copy(output(0), parts.at({rank, 1}), there);
  return std::move(builder).build();
}

Schedule schedule_of(const CollectiveSpec& spec, int ranks, std::uint32_t chunks,
                     Program (*program)(int, Rank, Rank)) {
  const Rank root = spec.root;
  return {.spec = spec,
          .ranks = ranks,
          .chunks = chunks,
          .program = [ranks, root, program](Rank rank) { return program(ranks, rank, root); },
          .name = "binomial"};
}

}  // namespace

Schedule binomial_broadcast(const topology::Topology& topology, Rank root) {
  return schedule_of({Collective::broadcast, root}, topology.ranks(), 1, broadcast_program);
}

Schedule binomial_gather(const topology::Topology& topology, Rank root) {
  const int ranks = topology.ranks();
  return schedule_of({Collective::gather, root}, ranks, static_cast<std::uint32_t>(ranks),
                     gather_program);
}

Schedule binomial_scatter(const topology::Topology& topology, Rank root) {
  const int ranks = topology.ranks();
  return schedule_of({Collective::scatter, root}, ranks, static_cast<std::uint32_t>(ranks),
                     scatter_program);
}

}  // namespace gradwire::schedule
