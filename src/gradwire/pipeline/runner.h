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

/// The work of a rank's stages. The runner calls it from step() and finish(), on their thread.
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
  /// The gradients of the stage's weights are complete: those of the step, or under rules that
  /// update after each micro-batch, those of one of its micro-batches.
  virtual void update(Stage /*stage*/, std::int64_t /*step*/) {}
  /// Returns the number of a step in the messages of errors.
  virtual std::int64_t number_of(std::int64_t step) const { return step; }
};

/// Returns the schedule with receives_ahead limited to what can be useful: no more inputs of a
/// stage can wait for their turn than the stage before it keeps micro-batches. Runs as fast as the
/// unlimited schedule, with bounded memory.
PipelineSchedule with_bounded_receives(PipelineSchedule schedule);

/// Runs one rank's part of a pipeline schedule, step by step: computes its tasks in their order,
/// waits for the inputs of each, and sends its outputs. Receives are started ahead of time, of the
/// next step too. Tasks with a delay are of earlier steps, and finish() computes those that are
/// left. Every rank runs the same schedule, or all steps fail. Used by one thread.
///
/// Errors of communication are thrown as Exceptions whose message names the task and the message
/// that this rank waited for; StageWork's Exceptions get the task, or the stage that is updated.
/// After an error, no other call is allowed.
class PipelineRunner {
 public:
  /// Throws Exception(invalid_argument) if find_fault() finds a fault. `work` and `transfers` must
  /// outlive the runner.
  PipelineRunner(PipelineSchedule schedule, Rank rank, StageWork& work, StageTransfers& transfers);

  /// Computes this rank's tasks in the time of one step, and begins with the undelayed tasks of
  /// step steps(). Sends may still be in flight at the end.
  void step();
  /// Computes the delayed tasks of the steps so far, and waits until everything is sent. The next
  /// step begins with an empty pipeline. If the schedule has delayed tasks, receive_buffer() must
  /// not have returned memory for later steps.
  void finish();

  const PipelineSchedule& schedule() const { return schedule_; }
  /// The number of steps so far.
  std::int64_t steps() const { return step_; }

 private:
  /// The messages of one pair of stages that this rank receives, or sends.
  struct Channel {
    Stage from = 0, to = 0;
    Rank peer = 0;
    struct Input {
      MicroBatch micro_batch = 0;
      int delay = 0;
    };
    std::vector<Input> inputs;  ///< Received: in the order of their use in the time of a step.
    std::int64_t period = 0;    ///< Next receive to start: the step whose time it is ...
    std::size_t next = 0;       ///< ... and its place in `inputs`.
    struct InFlight {
      Message message;
      std::int64_t step;
      Work work;
    };
    std::vector<InFlight> in_flight;  ///< The oldest first.
  };

  /// Computes the rank's tasks of the time of step `period` whose steps are before `end`.
  void run_period(std::int64_t period, std::int64_t end);
  void find_channels();
  /// The channel of a message in receives_ or sends_.
  static Channel& channel_of(std::vector<Channel>& channels, const Message& message);
  void start_receives();
  void start_receives(Channel& channel);
  void wait_for_inputs(const Task& task);
  void make_room_for_outputs(const Task& task);
  void send_outputs(const Task& task, std::int64_t step);
  void complete_oldest_send(Channel& channel);
  void reap_sends();
  /// Runs `action`; puts the step and text() in front of the message of an Exception.
  template <class Text, class Action>
  void explain(const Text& text, const Action& action);
  void compute(const Task& task, std::int64_t step);
  void update(Stage stage, std::int64_t step);
  /// Runs `action`; puts the verb and the message in front of the message of an Exception.
  template <class Action>
  void communicate(const char* verb, const Message& message, const Action& action);
  std::vector<Message> remote(std::vector<Message> messages) const;

  PipelineSchedule schedule_;
  Rank rank_;
  StageWork& work_;
  StageTransfers& transfers_;
  std::vector<Channel> receives_, sends_;
  std::vector<bool> updates_;  ///< By place in the order: the task completes gradients.
  const Task* current_ = nullptr;
  std::int64_t current_step_ = 0;
  std::int64_t step_ = 0;
  std::int64_t first_ = 0;  ///< The first step since the pipeline was empty.
  bool drains_ = false;
};

}  // namespace gradwire::pipeline
