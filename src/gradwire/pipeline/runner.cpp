#include "gradwire/pipeline/runner.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "gradwire/base/refuse.h"
#include "gradwire/pipeline/verifier.h"
#include "gradwire/pipeline/weight_rules.h"

namespace gradwire::pipeline {
namespace {

std::string description_of(const Message& message) {
  if (message.is_gradient()) {
    return fmt::format("the gradient of micro-batch {} from stage {} to stage {}",
                       message.micro_batch, message.from, message.to);
  }
  return fmt::format("the activation of micro-batch {} from stage {} to stage {}",
                     message.micro_batch, message.from, message.to);
}

}  // namespace

PipelineSchedule with_bounded_receives(PipelineSchedule schedule) {
  if (!schedule.trains) return schedule;  // Nothing is kept.
  const std::vector<int> kept = kept_by_rank(schedule);
  schedule.receives_ahead =
      std::min(schedule.receives_ahead, kept.empty() ? 1 : std::ranges::max(kept));
  return schedule;
}

PipelineRunner::PipelineRunner(PipelineSchedule schedule, Rank rank, StageWork& work,
                               StageTransfers& transfers)
    : schedule_(with_bounded_receives(std::move(schedule))),
      rank_(rank),
      work_(work),
      transfers_(transfers) {
  if (rank_ < 0 || rank_ >= schedule_.ranks()) {
    refuse("rank {}: the schedule {} is for {} ranks", rank_, schedule_.name, schedule_.ranks());
  }
  if (const auto fault = find_fault(schedule_)) {
    refuse("schedule {}: {}: {}", schedule_.name, name_of(fault->fault), fault->message);
  }
  updates_ = tasks_before_updates(schedule_, rank_);
  find_channels();
}

/// A channel for each pair of stages that this rank receives from, or sends to.
void PipelineRunner::find_channels() {
  const auto add = [](std::vector<Channel>& all, const Message& message, Rank peer, int delay) {
    const auto same = [&](const Channel& c) {
      return c.from == message.from && c.to == message.to;
    };
    auto found = std::ranges::find_if(all, same);
    if (found == all.end()) {
      all.push_back({.from = message.from, .to = message.to, .peer = peer});
      found = all.end() - 1;
    }
    found->inputs.push_back({message.micro_batch, delay});
  };
  for (const Task& task : schedule_.order[static_cast<std::size_t>(rank_)]) {
    for (const Message& message : remote(inputs_of(schedule_, task))) {
      add(receives_, message, schedule_.rank_of[static_cast<std::size_t>(message.from)],
          task.delay);
    }
    for (const Message& message : remote(outputs_of(schedule_, task))) {
      add(sends_, message, schedule_.rank_of[static_cast<std::size_t>(message.to)], task.delay);
    }
  }
}

std::vector<Message> PipelineRunner::remote(std::vector<Message> messages) const {
  std::erase_if(messages, [&](const Message& message) {
    return schedule_.rank_of[static_cast<std::size_t>(message.from)] ==
           schedule_.rank_of[static_cast<std::size_t>(message.to)];
  });
  return messages;
}

PipelineRunner::Channel& PipelineRunner::channel_of(std::vector<Channel>& channels,
                                                    const Message& message) {
  return *std::ranges::find_if(channels, [&](const Channel& channel) {
    return channel.from == message.from && channel.to == message.to;
  });
}

template <class Text, class Action>
void PipelineRunner::explain(const Text& text, const Action& action) {
  try {
    action();
  } catch (const Exception& e) {
    throw Exception(
        e.kind(), fmt::format("step {}, {}: {}", work_.number_of(current_step_), text(), e.what()));
  }
}

template <class Action>
void PipelineRunner::communicate(const char* verb, const Message& message, const Action& action) {
  const auto text = [&] {
    return fmt::format("{}: rank {} of the pipeline {} {}",
                       current_ ? name_of(*current_) : "before the first task", rank_, verb,
                       description_of(message));
  };
  explain(text, action);
}

void PipelineRunner::compute(const Task& task, std::int64_t step) {
  const auto text = [&] {
    return fmt::format("{}: rank {} of the pipeline computes micro-batch {} in stage {}",
                       name_of(task), rank_, task.micro_batch, task.stage);
  };
  explain(text, [&] { work_.compute(task, step); });
}

void PipelineRunner::update(Stage stage, std::int64_t step) {
  const auto text = [&] {
    return fmt::format("the update of stage {} on rank {} of the pipeline", stage, rank_);
  };
  explain(text, [&] { work_.update(stage, step); });
}

void PipelineRunner::step() {
  run_period(step_, step_ + 1);
  if (schedule_.barrier) {
    const auto text = [&] {
      return fmt::format("after {} on rank {} of the pipeline: barrier", name_of(*current_), rank_);
    };
    explain(text, [&] { transfers_.barrier(); });
  }
  ++step_;
}

void PipelineRunner::run_period(std::int64_t period, std::int64_t end) {
  const std::vector<Task>& order = schedule_.order[static_cast<std::size_t>(rank_)];
  for (std::size_t i = 0; i < order.size(); ++i) {
    const std::int64_t step = period - order[i].delay;
    if (step < first_ || step >= end) continue;
    current_ = &order[i];
    current_step_ = step;
    wait_for_inputs(order[i]);
    make_room_for_outputs(order[i]);
    compute(order[i], step);
    send_outputs(order[i], step);
    if (updates_[i]) update(order[i].stage, step);
  }
}

void PipelineRunner::finish() {
  drains_ = true;
  const int delay = max_delay(schedule_);
  for (std::int64_t period = step_; period < step_ + delay; ++period) run_period(period, step_);
  drains_ = false;
  first_ = step_;
  // Without delayed tasks, receives of the next step may be in flight.
  for (Channel& channel : receives_) {
    if (delay == 0) break;
    channel.period = step_;
    channel.next = 0;
  }
  for (Channel& channel : sends_) {
    while (!channel.in_flight.empty()) complete_oldest_send(channel);
  }
}

void PipelineRunner::start_receives() {
  for (Channel& channel : receives_) start_receives(channel);
}

/// Starts receives of messages up to receives_ahead after the next one, in the order of their use.
void PipelineRunner::start_receives(Channel& channel) {
  const std::size_t limit = 1 + static_cast<std::size_t>(schedule_.receives_ahead);
  const auto advance = [&channel] {
    if (++channel.next < channel.inputs.size()) return;
    channel.next = 0;
    ++channel.period;
  };
  const std::int64_t drained = step_ + max_delay(schedule_);
  for (; channel.in_flight.size() < limit; advance()) {
    const Channel::Input& input = channel.inputs[channel.next];
    const std::int64_t step = channel.period - input.delay;
    if (drains_ && channel.period >= drained) return;
    if (step < first_ || (drains_ && step >= step_)) continue;
    const Message message{channel.from, channel.to, input.micro_batch};
    auto buffer = work_.receive_buffer(message, step);
    if (!buffer) return;
    communicate("receives", message, [&] {
      channel.in_flight.push_back(
          {message, step, transfers_.receive(message, channel.peer, std::move(*buffer))});
    });
  }
}

void PipelineRunner::wait_for_inputs(const Task& task) {
  start_receives();
  for (const Message& message : remote(inputs_of(schedule_, task))) {
    Channel& channel = channel_of(receives_, message);
    communicate("waits for", message, [&] { channel.in_flight.front().work.wait(); });
    channel.in_flight.erase(channel.in_flight.begin());
  }
}

void PipelineRunner::make_room_for_outputs(const Task& task) {
  reap_sends();
  const auto limit = static_cast<std::size_t>(std::max(schedule_.sends_in_flight, 1));
  for (const Message& message : remote(outputs_of(schedule_, task))) {
    Channel& channel = channel_of(sends_, message);
    while (channel.in_flight.size() >= limit) complete_oldest_send(channel);
  }
}

void PipelineRunner::send_outputs(const Task& task, std::int64_t step) {
  for (const Message& message : remote(outputs_of(schedule_, task))) {
    Channel& channel = channel_of(sends_, message);
    communicate("sends", message, [&] {
      channel.in_flight.push_back(
          {message, step, transfers_.send(message, channel.peer, work_.output(message, step))});
    });
    if (schedule_.sends_in_flight == 0) complete_oldest_send(channel);
  }
}

void PipelineRunner::complete_oldest_send(Channel& channel) {
  Channel::InFlight& oldest = channel.in_flight.front();
  communicate("sends", oldest.message, [&] { oldest.work.wait(); });
  work_.sent(oldest.message, oldest.step);
  channel.in_flight.erase(channel.in_flight.begin());
}

void PipelineRunner::reap_sends() {
  for (Channel& channel : sends_) {
    while (!channel.in_flight.empty() && channel.in_flight.front().work.done()) {
      complete_oldest_send(channel);
    }
  }
}

}  // namespace gradwire::pipeline
