#include <array>
#include <bit>

#include "gradwire/schedule/algorithms/algorithms.h"
#include "gradwire/schedule/algorithms/tree_steps.h"

/// Two binary trees, each with half of the data. A rank with children in one tree is a leaf in the
/// other, so all ranks send and receive about the same amount. In a single tree the leaves, half of
/// all ranks, are mostly idle (Sanders, Speck, Traff, "Two-tree algorithms for full bandwidth
/// broadcast, reduction and scan", Parallel Computing 35, 2009).
///
/// Trees are numbered in order, with places from 1. The number of levels below place x is the
/// number of trailing zero bits of x, so the odd places are leaves.
///
///     P = 7:        4                P = 6:        4
///                2     6                        2     6
///               1 3   5 7                      1 3   5
///
/// The second tree places the ranks so that leaves become inner nodes: mirrored if P is even,
/// shifted by one if P is odd (one rank is then a leaf in both).
namespace gradwire::schedule {
namespace {

int lowest_bit(int place) {
  return place & -place;
}

/// The parent: the nearest place one level up. If that is beyond the last place, the nearest
/// ancestor within the tree.
int parent_of(int place, int places) {
  int above = place;
  do {
    const int bit = lowest_bit(above);
    above = (above ^ bit) | (bit << 1);
  } while (above > places);
  return above;
}

/// The right child, or 0: if the regular one is beyond the last place, its nearest descendant
/// within the tree.
int right_child_of(int place, int places) {
  int step = lowest_bit(place) / 2;
  while (step > 0 && place + step > places) step /= 2;
  return step > 0 ? place + step : 0;
}

struct Tree {
  int ranks;
  bool second;

  int place_of(Rank rank) const {
    if (!second) return rank + 1;
    return ranks % 2 == 0 ? ranks - rank : (rank + 1) % ranks + 1;
  }

  Rank rank_at(int place) const {
    if (!second) return place - 1;
    return ranks % 2 == 0 ? ranks - place : (place - 2 + ranks) % ranks;
  }

  TreeNeighbors neighbors(Rank rank) const {
    const int place = place_of(rank);
    const int root = static_cast<int>(std::bit_floor(static_cast<unsigned>(ranks)));
    TreeNeighbors found;
    if (place != root) found.parent = rank_at(parent_of(place, ranks));
    if (lowest_bit(place) > 1) found.children.push_back(rank_at(place - lowest_bit(place) / 2));
    const int right = right_child_of(place, ranks);
    if (right > 0) found.children.push_back(rank_at(right));
    return found;
  }
};

Program double_tree_program(int ranks, Rank rank) {
  const std::array places{Tree{ranks, false}.neighbors(rank), Tree{ranks, true}.neighbors(rank)};
  return all_reduce_over_trees(places);
}

}  // namespace

Schedule double_tree_all_reduce(const topology::Topology& topology) {
  const int ranks = topology.ranks();
  return {.spec = {Collective::all_reduce},
          .ranks = ranks,
          .chunks = 2,
          .program = [ranks](Rank rank) { return double_tree_program(ranks, rank); },
          .name = "double_tree"};
}

}  // namespace gradwire::schedule
