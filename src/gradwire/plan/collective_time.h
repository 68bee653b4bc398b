#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "gradwire/plan/network.h"

namespace gradwire {

/// Time of a collective, split into costs of bytes and of hops.
struct CollectiveTime {
  double bandwidth = 0;  ///< Seconds.
  double latency = 0;    ///< Seconds.
  double sent = 0;       ///< Bytes sent by each node.
  std::string algorithm;

  double total() const { return bandwidth + latency; }
};

/// Returns the all-reduce algorithms with a closed form here; names as in schedule/catalogue.h.
std::vector<std::string_view> planned_algorithms();

/// Returns the time of an all-reduce of `bytes` among `nodes` nodes, each with `network.goodput()`.
/// P nodes, L: latency and CPU time of a hop, T' = bytes / goodput, logs to base 2, rounded up:
///
///   ring                2 (P-1) L        + 2 (P-1)/P T'
///   direct              2 L + messages   + 2 (P-1)/P T'
///   halving_doubling    2 log P L        + 2 (P-1)/P T'; P no power of two: min(3, 2 + 6/P) T'
///   recursive_doubling  log P L          + log P T'
///   tree                2 log P L        + 3.7 T'; P = 4: 2.3, less: 2
///   double_tree         2 log P L        + 2.05 T'
///   star                2 L + messages   + (P-1) T'
///
/// Textbook trees and stars wait for whole messages (4 T' or more, 2 (P-1) T'). The trees and stars
/// here are cut-through, in both directions at the same time. Their factors are those of
/// ScheduleCost, which simulates the schedules; tests compare all of these with it.
///
/// "auto" is the fastest; direct only where its messages are small, as large concurrent ones
/// overflow a switch's queue (incast). An oversubscribed switch carries less between halves of the
/// nodes: half of the bytes of all algorithms but the ring cross it, so their bandwidth term is
/// multiplied by oversubscription / 2, if that is above 1. If measured ports differ, auto takes
/// max(M / min B, 2 (P-1) M / (B_1 + ... + B_P)) (docs/vocabulary.md).
CollectiveTime all_reduce_time(std::string_view algorithm, int nodes, double bytes,
                               const Network& network);

/// Returns half of an "auto" all-reduce; with ring or direct: (P-1)/P of the bytes, P - 1 hops or
/// one.
CollectiveTime reduce_scatter_time(int nodes, double bytes, const Network& network);

/// Returns the time of encoded gradients (ARCHITECTURE.md): an all-to-all of contributions of
/// `contribution` bytes per node, and an all-gather of `mean` bytes.
CollectiveTime coded_time(int nodes, double contribution, double mean, const Network& network);

/// Returns the time of the all-to-all alone: each node keeps the part that it reduces.
CollectiveTime coded_reduction_time(int nodes, double contribution, const Network& network);

/// Returns the time of synchronous parameter servers on `servers` nodes besides `workers`. Each
/// worker sends and receives all bytes; each server's port carries its part for all workers, in and
/// out (Li et al., OSDI 2014): 2 (L + max(T', workers T' / servers)).
CollectiveTime server_time(int workers, int servers, double bytes, const Network& network);

}  // namespace gradwire
