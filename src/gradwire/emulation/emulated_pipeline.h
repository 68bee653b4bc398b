#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "gradwire/comm/communicator.h"
#include "gradwire/emulation/emulated_device.h"
#include "gradwire/pipeline/runner.h"
#include "gradwire/pipeline/simulation.h"

namespace gradwire::emulation {

/// Replicas of an emulated pipeline, which sum the gradients of each stage as data parallelism
/// does.
struct EmulatedReplicas {
  std::shared_ptr<Communicator> group;  ///< The ranks with the same stages; null: one replica.
  std::size_t gradient_bytes = 0;       ///< Size of the gradients of a stage.
  /// Gradients are summed after each micro-batch, as with ZeRO 2 and 3, not after each step.
  bool each_micro_batch = false;
};

/// Sums of the gradients of one stage over the replicas, in buckets; later ones have higher
/// priority, as in training.
class EmulatedReductions {
 public:
  EmulatedReductions(std::shared_ptr<Communicator> group, std::size_t bytes, bool prioritizes);

  /// Starts a sum, when the last one is complete.
  void start();
  void wait();

 private:
  std::shared_ptr<Communicator> group_;
  bool prioritizes_;
  std::vector<float> gradients_;
  std::vector<Work> works_;
};

/// A rank's stages with emulated compute: they take the time of `costs`, and send messages of
/// `message_bytes`. Each message has its step and place in it, which its receiver checks. With
/// replicas, the first forward of a step waits for the sums of the step before.
class EmulatedStages final : public pipeline::StageWork {
 public:
  /// Runs `steps` steps of the schedule. All references must outlive it.
  EmulatedStages(const pipeline::PipelineSchedule& schedule, const pipeline::PipelineCosts& costs,
                 std::size_t message_bytes, std::int64_t steps, Alarm& alarm,
                 const EmulatedReplicas& replicas = {}, bool prioritizes = true);

  std::optional<LentSpan> receive_buffer(const pipeline::Message& message,
                                         std::int64_t step) override;
  /// Throws Exception(corrupted) if an input is of another task or step.
  void compute(const pipeline::Task& task, std::int64_t step) override;
  LentConstSpan output(const pipeline::Message& message, std::int64_t step) override;
  void sent(const pipeline::Message& message, std::int64_t step) override;
  void update(pipeline::Stage stage, std::int64_t step) override;
  /// Waits for the sums in flight. Called after the last step.
  void finish();

  /// Maximum number of micro-batches between their forward and their last backward.
  int max_kept() const { return max_kept_; }

 private:
  using Key = std::pair<pipeline::Message, std::int64_t>;
  /// The message's stamp comes first. Shared with the operation that has it on loan.
  using Buffer = std::shared_ptr<std::vector<std::int64_t>>;

  Buffer take_buffer();
  void check_input(const pipeline::Message& message, std::int64_t step);

  const pipeline::PipelineSchedule& schedule_;
  const pipeline::PipelineCosts& costs_;
  std::size_t bytes_;
  std::int64_t steps_;
  EmulatedDevice device_;
  std::map<Key, Buffer> buffers_;  ///< Buffers of messages that arrive, or are being sent.
  std::vector<Buffer> free_;
  int kept_ = 0, max_kept_ = 0;
  bool each_micro_batch_;
  std::map<pipeline::Stage, EmulatedReductions> reductions_;
  std::set<pipeline::Stage> updating_;  ///< Stages whose next forward waits for their sums.
};

/// How a pipeline is measured.
struct PipelineMeasurementOptions {
  pipeline::StageCosts compute;  ///< Costs of a rank's stages together, in seconds.
  std::size_t message_bytes = 0;
  int warmup = 3;
  int steps = 10;  ///< Measured, after those.
  EmulatedReplicas replicas;
  /// Messages between stages have priority over sums of gradients.
  bool prioritizes = true;
};

struct PipelineFigures {
  double step = 0;    ///< Seconds: median of the steps, of the slowest rank.
  double ideal = 0;   ///< Seconds of the computations of the rank that has most.
  double bubble = 0;  ///< 1 - ideal / step.
  /// Seconds of a step in simulation, with the transfer time as measured, without sums of
  /// gradients.
  double predicted = 0;
  int kept = 0;  ///< Micro-batches that a rank kept at most, of all ranks.
};

/// Time of a message between neighbours, the slowest pair's, in seconds.
struct TransferTime {
  double transfer = 0;  ///< The reciprocal of messages per second.
  double latency = 0;   ///< From the end of sending to the arrival.
};

/// Returns the maximum over all ranks. Collective.
double max_over_ranks(Communicator& communicator, double value);

/// Measures messages from each rank to the next and back, one pair after the other. Collective.
TransferTime measure_transfer(Communicator& communicator, std::size_t bytes, Alarm& alarm);

/// Runs a schedule with as many ranks as the communicator. Collective; the result is the same on
/// all its ranks, and is that of this replica. Throws what PipelineRunner throws.
PipelineFigures measure_pipeline(const std::shared_ptr<Communicator>& communicator,
                                 const pipeline::PipelineSchedule& schedule,
                                 const PipelineMeasurementOptions& options,
                                 const TransferTime& transfer, Alarm& alarm);

}  // namespace gradwire::emulation
