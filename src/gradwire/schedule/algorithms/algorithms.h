#pragma once

#include "gradwire/schedule/schedule.h"
#include "gradwire/topology/topology.h"

/// All algorithms: pure functions from a topology to a schedule, for any number of ranks from one
/// upwards. P = ranks, L = latency, B = bandwidth, G = bytes of the whole data, T' = G / B. Times
/// are those of the textbook model, where each rank's port carries one message at a time in each
/// direction.
namespace gradwire::schedule {

// --- ring.cpp: messages between ring neighbors only; ranks of a host are adjacent ---

/// 2(P-1) hops of 1/P of the data: 2(P-1)(L + T'/P). Each rank sends 2(P-1)/P of the data, the
/// minimum (Patarasuk, Yuan, "Bandwidth optimal all-reduce algorithms", JPDC 69, 2009). No scratch.
Schedule ring_all_reduce(const topology::Topology& topology);

/// The ring's reduce-scatter phase: P-1 hops. Scratch: P-2 chunks.
Schedule ring_reduce_scatter(const topology::Topology& topology);

/// The ring's all-gather phase: P-1 hops.
Schedule ring_all_gather(const topology::Topology& topology);

/// A chain that starts at the root: P-1 hops of the whole data, pipelined by segment:
/// about (P-1) L + T'.
Schedule ring_broadcast(const topology::Topology& topology, Rank root);

/// A chain that ends at the root; same time. Scratch: the whole data, on ranks inside the chain.
Schedule ring_reduce(const topology::Topology& topology, Rank root);

// --- direct.cpp: every rank to every rank ---

/// Two hops: each rank reduces its 1/P of the data, then sends it to all: 2(L + (P-1)/P T'). Sends
/// as many bytes as the ring, with two latencies. Scratch: P-2 chunks.
Schedule direct_all_reduce(const topology::Topology& topology);

/// The first hop only. Scratch: P-2 chunks.
Schedule direct_reduce_scatter(const topology::Topology& topology);

/// One hop: each rank sends its part to all others.
Schedule direct_all_gather(const topology::Topology& topology);

/// A parameter server: rank 0 reduces all data: 2(L + (P-1) T'). Scratch: P-2 times the data, on
/// rank 0.
Schedule star_all_reduce(const topology::Topology& topology);

// --- uneven.cpp ---

/// The two hops of `direct`, with shares that suit unequal ports: at best
/// 2 L + max(G / min B_i, 2(P-1) G / sum of B_i), which is a lower bound for every all-reduce.
Schedule uneven_all_reduce(const topology::Topology& topology);

// --- rooted.cpp: one hop between the root and all other ranks ---

/// L + (P-1) T'. Scratch: P-2 times the data, on the root.
Schedule direct_reduce(const topology::Topology& topology, Rank root);

/// Both take L + (P-1)/P T', where T' is that of all parts. No scratch.
Schedule direct_gather(const topology::Topology& topology, Rank root);
Schedule direct_scatter(const topology::Topology& topology, Rank root);

// --- all_to_all.cpp ---

/// One hop, all messages at once: L + (P-1)/P T', where T' is that of all parts of one rank.
Schedule direct_all_to_all(const topology::Topology& topology);

/// P-1 hops of one part each: (P-1)(L + T'/P). No incast: a rank receives from one rank at a time.
Schedule pairwise_all_to_all(const topology::Topology& topology);

// --- tree.cpp: a binary tree ---

/// Reduces up a binary tree and broadcasts down it: 2 log P (L + T'), floor(log P) levels. Scratch:
/// the whole data, on ranks with two children.
Schedule tree_all_reduce(const topology::Topology& topology);

/// Up a binary tree to the root: log P (L + T'). Scratch: once or twice the data.
Schedule tree_reduce(const topology::Topology& topology, Rank root);

/// Down a binary tree from the root: log P (L + T').
Schedule tree_broadcast(const topology::Topology& topology, Rank root);

/// The trees above, over hosts; a host's leader exchanges data with its other ranks: log H levels
/// across hosts and one level within.
Schedule host_tree_reduce(const topology::Topology& topology, Rank root);
Schedule host_tree_broadcast(const topology::Topology& topology, Rank root);

// --- double_tree.cpp ---

/// Reduces and broadcasts over two binary trees, half of the data each: 2 log P (L + T'/2),
/// floor(log P) levels. Scratch: half of the data, on ranks with two children.
Schedule double_tree_all_reduce(const topology::Topology& topology);

// --- binomial.cpp ---

/// ceil(log P) rounds: in each, every rank that has the data sends it on. ceil(log P) (L + T').
Schedule binomial_broadcast(const topology::Topology& topology, Rank root);

/// ceil(log P) rounds of doubling (scatter: halving) size: ceil(log P) L + (P-1)/P T'. Scratch: the
/// forwarded parts.
Schedule binomial_gather(const topology::Topology& topology, Rank root);
Schedule binomial_scatter(const topology::Topology& topology, Rank root);

// --- recursive_doubling.cpp ---

/// log P exchanges of the whole data with partners at distance 1, 2, 4, ...: log P (L + T'). Ranks
/// beyond the largest power of two send their data to a neighbor before, and receive the result
/// after: up to two hops more. Scratch: log P times the whole data.
Schedule recursive_doubling_all_reduce(const topology::Topology& topology);

// --- exchange.cpp ---

/// One hop: every rank sends all its data to every rank: L + (P-1) T'. Scratch: P-1 times the data.
Schedule exchange_all_reduce(const topology::Topology& topology);

// --- halving_doubling.cpp: exchanges of halving or doubling size ---

/// 2 ceil(log P) hops; for powers of two 2 log P L + 2(P-1)/P T', for others up to T' more.
/// Scratch: less than the data.
Schedule halving_doubling_all_reduce(const topology::Topology& topology);

/// Its reduce-scatter phase. Scratch: less than twice the data.
Schedule recursive_halving_reduce_scatter(const topology::Topology& topology);

/// Its all-gather phase. No scratch.
Schedule recursive_doubling_all_gather(const topology::Topology& topology);

// --- bruck.cpp ---

/// ceil(log P) hops and (P-1)/P T' for any P (Bruck et al., "Efficient algorithms for all-to-all
/// communications in multiport message-passing systems", IEEE TPDS 8(11), 1997). No scratch.
Schedule bruck_all_gather(const topology::Topology& topology);

// --- hierarchical.cpp, leaders.cpp: for hosts with several ranks ---

/// Reduces within hosts, then across the H hosts as direct: two hops within hosts, and across
/// 2(L + (H-1)/H T') with B the host's; with unequal ports as `uneven`. All ranks of a host share
/// the work.
Schedule hierarchical_all_reduce(const topology::Topology& topology);

/// The same for small data: one leader per host reduces, and the leaders exchange all data: two
/// hops within hosts and L + (H-1) T' across.
Schedule leaders_all_reduce(const topology::Topology& topology);

// --- spanning_trees.cpp ---

/// Reduces and broadcasts over spanning trees, packed over unequal ports and wires
/// (tree_packing.h).
Schedule spanning_trees_all_reduce(const topology::Topology& topology);

// --- dissemination.cpp ---

/// ceil(log P) rounds of one empty message each (Hensgen, Finkel, Manber, "Two algorithms for
/// barrier synchronization", IJPP 17(1), 1988).
Schedule dissemination_barrier(const topology::Topology& topology);

// --- point_to_point.cpp ---

/// One message. If `from` and `to` are the same rank, it copies.
Schedule point_to_point(const topology::Topology& topology, Rank from, Rank to);

}  // namespace gradwire::schedule
