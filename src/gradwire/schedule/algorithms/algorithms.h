#pragma once

#include "gradwire/schedule/schedule.h"
#include "gradwire/topology/topology.h"

/// Every algorithm: a pure function from a topology to a schedule for any number of ranks from one
/// upwards. P = ranks, L = latency, T' = the time the whole data takes on a link; times are those
/// of the textbook, where every rank's port carries one message at a time each way.
namespace gradwire {

// --- ring.cpp: each rank talks to its two neighbours only ---

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

// --- direct.cpp: everybody to everybody ---

/// Two hops: each rank reduces its 1/P of the data, then sends it to all: 2(L + (P-1)/P T').
/// Sends as little as the ring, in two latencies. Scratch: P-1 chunks.
Schedule direct_all_reduce(const Topology& topology);

/// The first hop alone. Scratch: P-1 chunks.
Schedule direct_reduce_scatter(const Topology& topology);

/// One hop: each rank sends its part to all others.
Schedule direct_all_gather(const Topology& topology);

// --- tree.cpp: a binary tree ---

/// Reduces up a binary tree and broadcasts down it: 2 log P (L + T'), floor(log P) levels.
/// Scratch: the whole data, on ranks with two children.
Schedule tree_all_reduce(const Topology& topology);

/// Down a binary tree from the root: log P (L + T').
Schedule tree_broadcast(const Topology& topology, Rank root);

// --- recursive_doubling.cpp ---

/// log P exchanges of the whole data with partners at distance 1, 2, 4, ...: log P (L + T'). The
/// ranks above the largest power of two hand theirs to a neighbour before, and get the result
/// after: a hop or two more. Scratch: the whole data log P times.
Schedule recursive_doubling_all_reduce(const Topology& topology);

// --- dissemination.cpp ---

/// ceil(log P) rounds of one empty message each (Hensgen, Finkel, Manber, "Two algorithms for
/// barrier synchronization", IJPP 17(1), 1988).
Schedule dissemination_barrier(const Topology& topology);

// --- point_to_point.cpp ---

/// One message. `from` and `to` may be the same rank, which then copies.
Schedule point_to_point(const Topology& topology, Rank from, Rank to);

}  // namespace gradwire
