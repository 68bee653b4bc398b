#pragma once

#include "gradwire/schedule/schedule.h"
#include "gradwire/topology/topology.h"

/// Every algorithm: a pure function from a topology to a schedule for any number of ranks from one
/// upwards. P = ranks, L = latency, B = bandwidth, G = bytes of the whole data, T' = G / B; times
/// are those of the textbook, where every rank's port carries one message at a time each way.
namespace gradwire {

// --- ring.cpp: each rank talks to its two neighbours only, those of a host in a row ---

/// 2(P-1) hops of 1/P of the data: 2(P-1)(L + T'/P). Sends 2(P-1)/P of the data, the least possible
/// (Patarasuk, Yuan, "Bandwidth optimal all-reduce algorithms", JPDC 69, 2009). No scratch.
Schedule ring_all_reduce(const Topology& topology);

/// The ring's first half: P-1 hops. Scratch: P-2 chunks.
Schedule ring_reduce_scatter(const Topology& topology);

/// The ring's second half: P-1 hops.
Schedule ring_all_gather(const Topology& topology);

/// A chain from the root on: P-1 hops of the whole, which flows through all of them at once:
/// about (P-1) L + T'.
Schedule ring_broadcast(const Topology& topology, Rank root);

/// A chain that ends at the root: the same time. Scratch: the whole data, in the middle.
Schedule ring_reduce(const Topology& topology, Rank root);

// --- direct.cpp: everybody to everybody ---

/// Two hops: each rank reduces its 1/P of the data, then sends it to all: 2(L + (P-1)/P T').
/// Sends as little as the ring, in two latencies. Scratch: P-2 chunks.
Schedule direct_all_reduce(const Topology& topology);

/// The first hop alone. Scratch: P-2 chunks.
Schedule direct_reduce_scatter(const Topology& topology);

/// One hop: each rank sends its part to all others.
Schedule direct_all_gather(const Topology& topology);

/// The parameter server: rank 0 reduces everything: 2(L + (P-1) T'). Scratch: P-2 times the data,
/// there.
Schedule star_all_reduce(const Topology& topology);

// --- uneven.cpp ---

/// The direct one with shares that suit unequal ports: at best 2 L + max(G / min B_i,
/// 2(P-1) G / sum of B_i), which no all-reduce can beat.
Schedule uneven_all_reduce(const Topology& topology);

// --- rooted.cpp: one hop between the root and everybody else ---

/// L + (P-1) T'. Scratch: P-2 times the data, at the root.
Schedule direct_reduce(const Topology& topology, Rank root);

/// Each L + (P-1)/P T' (T' being that of all parts). No scratch.
Schedule direct_gather(const Topology& topology, Rank root);
Schedule direct_scatter(const Topology& topology, Rank root);

// --- all_to_all.cpp ---

/// One hop, everything at once: L + (P-1)/P T' (T' being that of all of a rank's parts).
Schedule direct_all_to_all(const Topology& topology);

/// P-1 hops of one part each: (P-1)(L + T'/P), but nobody hears from two ranks at the same time.
Schedule pairwise_all_to_all(const Topology& topology);

// --- tree.cpp: a binary tree ---

/// Reduces up a binary tree and broadcasts down it: 2 log P (L + T'), floor(log P) levels.
/// Scratch: the whole data, on ranks with two children.
Schedule tree_all_reduce(const Topology& topology);

/// Up a binary tree to the root: log P (L + T'). Scratch: the data once or twice.
Schedule tree_reduce(const Topology& topology, Rank root);

/// Down a binary tree from the root: log P (L + T').
Schedule tree_broadcast(const Topology& topology, Rank root);

/// The same over hosts, each of which hands on to its other ranks: log H levels across and one
/// inside.
Schedule host_tree_reduce(const Topology& topology, Rank root);
Schedule host_tree_broadcast(const Topology& topology, Rank root);

// --- double_tree.cpp ---

/// Up and down two binary trees, half of the data each: 2 log P (L + T'/2), floor(log P) levels.
/// Scratch: half of the data, on ranks with two children.
Schedule double_tree_all_reduce(const Topology& topology);

// --- binomial.cpp ---

/// ceil(log P) rounds: in each, everybody who has the data sends it on. ceil(log P) (L + T').
Schedule binomial_broadcast(const Topology& topology, Rank root);

/// ceil(log P) rounds, in which twice as much moves each time: ceil(log P) L + (P-1)/P T'.
/// Scratch: the parts that pass through.
Schedule binomial_gather(const Topology& topology, Rank root);
Schedule binomial_scatter(const Topology& topology, Rank root);

// --- recursive_doubling.cpp ---

/// log P exchanges of the whole data with partners at distance 1, 2, 4, ...: log P (L + T'). The
/// ranks above the largest power of two hand theirs to a neighbour before, and get the result
/// after: a hop or two more. Scratch: the whole data log P times.
Schedule recursive_doubling_all_reduce(const Topology& topology);

// --- exchange.cpp ---

/// One hop: everybody sends all it has to everybody: L + (P-1) T'. Scratch: P-1 times the data.
Schedule exchange_all_reduce(const Topology& topology);

// --- halving_doubling.cpp: exchanges of half as much each time, or twice as much ---

/// 2 ceil(log P) hops; for powers of two 2 log P L + 2(P-1)/P T', for others up to T' more.
/// Scratch: less than the data.
Schedule halving_doubling_all_reduce(const Topology& topology);

/// Its first half. Scratch: less than twice the data.
Schedule recursive_halving_reduce_scatter(const Topology& topology);

/// Its second half. No scratch.
Schedule recursive_doubling_all_gather(const Topology& topology);

// --- bruck.cpp ---

/// ceil(log P) hops and (P-1)/P T' for any P (Bruck et al., "Efficient algorithms for all-to-all
/// communications in multiport message-passing systems", IEEE TPDS 8(11), 1997). No scratch.
Schedule bruck_all_gather(const Topology& topology);

// --- hierarchical.cpp, leaders.cpp: for hosts with several ranks ---

/// Adds up inside the hosts, then directly across, H hosts: two hops inside, and across
/// 2(L + (H-1)/H T') with B the host's; with unequal ports as `uneven`. All of a host's ranks share
/// in the work.
Schedule hierarchical_all_reduce(const Topology& topology);

/// The same for little data: one rank a host collects, and these exchange all they have: two hops
/// inside and L + (H-1) T' across.
Schedule leaders_all_reduce(const Topology& topology);

// --- spanning_trees.cpp ---

/// Up and down spanning trees that are packed over unequal ports and wires (tree_packing.h).
Schedule spanning_trees_all_reduce(const Topology& topology);

// --- dissemination.cpp ---

/// ceil(log P) rounds of one empty message each (Hensgen, Finkel, Manber, "Two algorithms for
/// barrier synchronization", IJPP 17(1), 1988).
Schedule dissemination_barrier(const Topology& topology);

// --- point_to_point.cpp ---

/// One message. `from` and `to` may be the same rank, which then copies.
Schedule point_to_point(const Topology& topology, Rank from, Rank to);

}  // namespace gradwire
