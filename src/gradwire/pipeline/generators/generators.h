#pragma once

#include <vector>

#include "gradwire/pipeline/catalogue.h"
#include "gradwire/pipeline/pipeline_schedule.h"

/// The generators of pipeline schedules, one file each; catalogue.h lists them. `options` is valid
/// (make_pipeline() checks it).
namespace gradwire::pipeline {

/// GPipe (Huang et al., NeurIPS 2019): all forwards, then all backwards, in the order of the
/// micro-batches.
PipelineSchedule gpipe(const PipelineOptions& options);

/// 1F1B (Narayanan et al., "PipeDream", SOSP 2019; with one flush per step: arXiv:2006.09503):
/// after a warm-up of forwards, a backward and a forward in turn. With transfers of c seconds the
/// warm-up of stage s of p is 1 + (p-1-s) (1 + ceil(2c / (F+B))) forwards, which covers the round
/// trip to the last stage; p - s, as in the paper, for c = 0, and where 2c < (F+B) / 100. If
/// `options.kept` is K, at most K - s.
PipelineSchedule one_f_one_b(const PipelineOptions& options);

/// Interleaved 1F1B (Narayanan et al., SC 2021, section 2.2): rank r has the stages r, r + p, ...
/// Ordered greedily, with the same memory, if the micro-batches are no multiple of the ranks.
PipelineSchedule interleaved(const PipelineOptions& options);

/// ZB-H1 (Qi et al., arXiv:2401.10241): 1F1B whose weight gradients are computed s micro-batches
/// later on stage s, in place of idle time. Every rank keeps at most p micro-batches.
PipelineSchedule zero_bubble_h1(const PipelineOptions& options);

/// Greedy zero bubble: gradients of weights in all idle time that order_greedily() finds, with the
/// memory of `options.kept` micro-batches, or twice the ranks.
PipelineSchedule zero_bubble(const PipelineOptions& options);

/// ZB-V (Qi et al., arXiv:2401.10241, section 6): rank r has the stages r and 2p-1-r, so that the
/// first rank also has the last stage. Ordered greedily. A rank keeps `options.kept` micro-batches,
/// or as many as ranks, of both stages together: the paper's memory is that of 1F1B.
PipelineSchedule zero_bubble_v(const PipelineOptions& options);

/// The fastest schedule that best_schedule() (search.h) finds for the costs, with the memory of
/// `options.kept` micro-batches per rank, or twice the ranks.
PipelineSchedule searched(const PipelineOptions& options);

/// PipeDream (Narayanan et al., SOSP 2019, section 3): never drains, updates a stage after each
/// micro-batch, and keeps the weights of a forward for its backward. Stage s has p-1-s
/// micro-batches under way beside the current one, so that its gradients are stale by as many
/// updates. If `options.kept` is K, stage s has ceil((K-1) (p-1-s) / (p-1)) under way: a K above p
/// hides transfers, a smaller one reduces the staleness.
PipelineSchedule pipedream(const PipelineOptions& options);

/// PipeDream-2BW (Narayanan et al., ICML 2021, arXiv:2006.09503): never drains, updates a stage
/// once a step, with gradients at the weights before the last update, so that two copies of the
/// weights are enough. `options.kept` as in pipedream(), but by default K hides the transfers,
/// because the staleness does not depend on it. At most a step's micro-batches are under way.
PipelineSchedule two_bw(const PipelineOptions& options);

/// Forwards only, for evaluation.
PipelineSchedule forward_only(const PipelineOptions& options);

/// Returns the number of micro-batches that leave a stage before the first one comes back, if no
/// stage waits for transfers: (p-1-s) (1 + ceil(2c / (F+B))), with the F+B of the slowest stage and
/// the c between each stage and the next.
int micro_batches_under_way(const PipelineOptions& options, Stage stage);

/// Orders the tasks of a schedule without an order by list scheduling in virtual time: a rank that
/// is free computes gradients of inputs if it can, else a forward, of the later stage if it has
/// several, else gradients of weights. A rank keeps at most `kept` micro-batches of its stages;
/// room for the forwards of its later stages is set aside, without which it might wait for ever.
/// Requires a chain of stages and `kept` of at least the stages of a rank.
PipelineSchedule order_greedily(PipelineSchedule schedule, const PipelineCosts& costs, int kept);

/// The same with a limit for each rank.
PipelineSchedule order_greedily(PipelineSchedule schedule, const PipelineCosts& costs,
                                const std::vector<int>& kept);

/// A schedule of a chain with `chunks` stages on each rank, dealt out in turn, without an order.
PipelineSchedule without_order(const PipelineOptions& options, int chunks = 1);

}  // namespace gradwire::pipeline
