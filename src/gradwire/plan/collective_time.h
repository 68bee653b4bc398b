#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "gradwire/plan/network.h"

namespace gradwire {

/// How long a collective takes, apart into what bytes and what hops cost.
struct CollectiveTime {
  double bandwidth = 0;  ///< Seconds.
  double latency = 0;    ///< Seconds.
  double sent = 0;       ///< Bytes that each node sends.
  std::string algorithm;

  double total() const { return bandwidth + latency; }
};

/// The ways of an all-reduce that have a closed form here: names of schedule/catalogue.h.
std::vector<std::string_view> planned_algorithms();

/// An all-reduce of `bytes` among `nodes` nodes, each with `network.goodput()`. With P nodes, L a
/// hop's latency and CPU time, T' = bytes / goodput, logs to base 2, rounded up:
///
///   ring                2 (P-1) L        + 2 (P-1)/P T'
///   direct              2 L + messages   + 2 (P-1)/P T'
///   halving_doubling    2 log P L        + 2 (P-1)/P T'; P no power of two: min(3, 2 + 6/P) T'
///   recursive_doubling  log P L          + log P T'
///   tree                2 log P L        + 3.7 T'; P = 4: 2.3, less: 2
///   double_tree         2 log P L        + 2.05 T'
///   star                2 L + messages   + (P-1) T'
///
/// The textbook's trees and star wait for whole messages (4 T' and more, 2 (P-1) T'); ours pass on
/// pieces as they come, both ways at once. Their factors are those of ScheduleCost, which plays the
/// schedules through; the tests hold all of these against it.
///
/// "auto": the fastest; direct only where its messages are small, as large ones all at once
/// overflow a switch's queue. Between halves of the nodes an oversubscribed switch carries less:
/// the bytes of all but the ring, half of which cross it, count so many times. Measured ports that
/// differ: auto takes max(M / min B, 2 (P-1) M / (B_1 + ... + B_P)) (docs/vocabulary.md).
CollectiveTime all_reduce_time(std::string_view algorithm, int nodes, double bytes,
                               const Network& network);

/// Half of an all-reduce by a ring or directly: (P-1)/P of the bytes, one or P - 1 hops.
CollectiveTime reduce_scatter_time(int nodes, double bytes, const Network& network);

/// What gradients that a codec encodes take (ARCHITECTURE.md): an all-to-all of contributions of
/// `contribution` bytes a node, and an all-gather of `mean` bytes.
CollectiveTime coded_time(int nodes, double contribution, double mean, const Network& network);

/// The first of these two alone: each node keeps the part that it adds up.
CollectiveTime coded_reduction_time(int nodes, double contribution, const Network& network);

/// Synchronous, `servers` nodes beside `workers`: each worker sends all and gets all, each server's
/// port carries its part for all workers, in and out (Li et al., OSDI 2014): 2 (L + max(T',
/// workers T' / servers)).
CollectiveTime server_time(int workers, int servers, double bytes, const Network& network);

}  // namespace gradwire
