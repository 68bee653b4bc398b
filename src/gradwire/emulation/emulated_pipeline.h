#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "gradwire/comm/communicator.h"
#include "gradwire/emulation/emulated_device.h"
#include "gradwire/pipeline/runner.h"
#include "gradwire/pipeline/simulation.h"

namespace gradwire::emulation {

/// A rank's stages with emulated compute: they take the time of `costs`, and send messages of
/// `message_bytes`. Each message has its step and place in it, which its receiver checks.
class EmulatedStages final : public pipeline::StageWork {
 public:
  /// Runs `steps` steps of the schedule. All references must outlive it.
  EmulatedStages(const pipeline::PipelineSchedule& schedule, const pipeline::PipelineCosts& costs,
                 std::size_t message_bytes, std::int64_t steps, Alarm& alarm);

  std::optional<LentSpan> receive_buffer(const pipeline::Message& message,
                                         std::int64_t step) override;
  /// Throws Exception(corrupted) if an input is of another task or step.
  void compute(const pipeline::Task& task, std::int64_t step) override;
  LentConstSpan output(const pipeline::Message& message, std::int64_t step) override;
  void sent(const pipeline::Message& message, std::int64_t step) override;

  /// Maximum number of micro-batches between their forward and their last backward.
  int most_kept() const { return most_kept_; }

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
  std::map<Key, Buffer> buffers_;  ///< Of messages that arrive, or are being sent.
  std::vector<Buffer> free_;
  int kept_ = 0, most_kept_ = 0;
};

/// How a pipeline is measured.
struct PipelineMeasurementOptions {
  pipeline::StageCosts compute;  ///< Of a rank's stages together, in seconds.
  std::size_t message_bytes = 0;
  int warmup = 3;
  int steps = 10;  ///< Measured, after those.
};

struct PipelineFigures {
  double step = 0;       ///< Seconds: median of the steps, of the slowest rank.
  double ideal = 0;      ///< Seconds of the computations of the rank that has most.
  double bubble = 0;     ///< 1 - ideal / step.
  double predicted = 0;  ///< Seconds of a step in simulation, with the transfer time as measured.
  int kept = 0;          ///< Micro-batches that a rank kept at most, of all ranks.
};

/// Time of a message between neighbours, the slowest pair's, in seconds.
struct TransferTime {
  double transfer = 0;  ///< The reciprocal of messages per second.
  double latency = 0;   ///< From the end of sending to the arrival.
};

/// Measures messages from each rank to the next and back, one pair after the other. Collective.
TransferTime measure_transfer(Communicator& communicator, std::size_t bytes, Alarm& alarm);

/// Runs a schedule with as many ranks as the communicator. Collective; the result is the same on
/// all ranks. Throws what PipelineRunner throws.
PipelineFigures measure_pipeline(const std::shared_ptr<Communicator>& communicator,
                                 const pipeline::PipelineSchedule& schedule,
                                 const PipelineMeasurementOptions& options,
                                 const TransferTime& transfer, Alarm& alarm);

}  // namespace gradwire::emulation
