#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gradwire/pipeline/pipeline_schedule.h"
#include "gradwire/pipeline/stage_transfers.h"

namespace gradwire::pipeline {

/// What a rank's stages compute. The runner calls it from step() and finish(), on their thread.
/// `step` counts the runner's steps from 0.
class StageWork {
 public:
  virtual ~StageWork() = default;

  /// Returns memory for a message that another rank sends, valid until the task that uses it has
  /// been computed; nullopt if its size is not known yet, which is allowed only for messages of
  /// later steps than the one that runs.
  virtual std::optional<LentSpan> receive_buffer(const Message& message, std::int64_t step) = 0;
  /// Computes one task, whose inputs have all arrived.
  virtual void compute(const Task& task, std::int64_t step) = 0;
  /// Returns the result of a task that has just been computed, for another rank. The memory is lent
  /// until sent().
  virtual LentConstSpan output(const Message& message, std::int64_t step) = 0;
  virtual void sent(const Message& /*message*/, std::int64_t /*step*/) {}
  /// All gradients of the stage's weights have been computed in this step.
  virtual void update(Stage /*stage*/, std::int64_t /*step*/) {}
};

/// Returns the schedule with receives_ahead limited to what can be useful: no more inputs of a
/// stage can wait for their turn than the stage before it keeps micro-batches. Runs as fast as the
/// unlimited schedule, with bounded memory.
PipelineSchedule with_bounded_receives(PipelineSchedule schedule);

/// Runs one rank's part of a pipeline schedule, step by step: computes its tasks in their order,
/// waits for the inputs of each, and sends its outputs. Receives are started ahead of time, of the
/// next step too. Every rank runs the same schedule, or all steps fail. Used by one thread.
///
/// Errors of communication are thrown as Exceptions whose message names the task and the message
/// that this rank waited for. After an error, no other call is allowed.
class PipelineRunner {
 public:
  /// Throws Exception(invalid_argument) if find_fault() finds a fault. `work` and `transfers` must
  /// outlive the runner.
  PipelineRunner(PipelineSchedule schedule, Rank rank, StageWork& work, StageTransfers& transfers);

  /// Computes this rank's tasks of one step. Sends may still be in flight at the end.
  void step();
  /// Waits until everything is sent.
  void finish();

  const PipelineSchedule& schedule() const { return schedule_; }
  /// The number of steps so far.
  std::int64_t steps() const { return step_; }

 private:
  /// The messages of one pair of stages that this rank receives, or sends.
  struct Channel {
    Stage from = 0, to = 0;
    Rank peer = 0;
    std::vector<MicroBatch> micro_batches;  ///< Received: in the order of their use in a step.
    std::size_t started = 0;                ///< Receives started, over all steps.
    std::size_t used = 0;                   ///< Received messages whose task has begun.
    struct InFlight {
      Message message;
      std::int64_t step;
      std::unique_ptr<Transfer> transfer;
    };
    std::vector<InFlight> in_flight;  ///< The oldest first.
  };

  void find_channels();
  /// The channel of a message in receives_ or sends_.
  static Channel& channel_of(std::vector<Channel>& channels, const Message& message);
  void start_receives();
  void start_receives(Channel& channel);
  void wait_for_inputs(const Task& task);
  void make_room_for_outputs(const Task& task);
  void send_outputs(const Task& task);
  void complete_oldest_send(Channel& channel);
  void reap_sends();
  /// Does what may throw, and adds to the error what this rank does with which message.
  template <class Action>
  void communicate(const char* verb, const Message& message, const Action& action);
  std::vector<Message> remote(std::vector<Message> messages) const;

  PipelineSchedule schedule_;
  Rank rank_;
  StageWork& work_;
  StageTransfers& transfers_;
  std::vector<Channel> receives_, sends_;
  std::vector<bool> ends_stage_;  ///< By task of a step: it is the last of its stage.
  const Task* current_ = nullptr;
  std::int64_t step_ = 0;
};

}  // namespace gradwire::pipeline
