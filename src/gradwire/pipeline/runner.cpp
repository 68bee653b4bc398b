#include "gradwire/pipeline/runner.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "gradwire/base/refuse.h"
#include "gradwire/pipeline/verifier.h"

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

std::vector<bool> last_tasks_of_stages(const std::vector<Task>& order) {
  std::vector<bool> last;
  for (auto task = order.begin(); task != order.end(); ++task) {
    last.push_back(std::none_of(task + 1, order.end(),
                                [&](const Task& later) { return later.stage == task->stage; }));
  }
  return last;
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
  ends_stage_ = last_tasks_of_stages(schedule_.order[static_cast<std::size_t>(rank_)]);
  find_channels();
}

/// A channel for each pair of stages that this rank receives from, or sends to.
void PipelineRunner::find_channels() {
  const auto add = [](std::vector<Channel>& all, const Message& message, Rank peer) {
    const auto same = [&](const Channel& c) {
      return c.from == message.from && c.to == message.to;
    };
    auto found = std::ranges::find_if(all, same);
    if (found == all.end()) {
      all.push_back({.from = message.from, .to = message.to, .peer = peer});
      found = all.end() - 1;
    }
    found->micro_batches.push_back(message.micro_batch);
  };
  for (const Task& task : schedule_.order[static_cast<std::size_t>(rank_)]) {
    for (const Message& message : remote(inputs_of(schedule_, task))) {
      add(receives_, message, schedule_.rank_of[static_cast<std::size_t>(message.from)]);
    }
    for (const Message& message : remote(outputs_of(schedule_, task))) {
      add(sends_, message, schedule_.rank_of[static_cast<std::size_t>(message.to)]);
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

template <class Action>
void PipelineRunner::communicate(const char* verb, const Message& message, const Action& action) {
  try {
    action();
  } catch (const Exception& e) {
    throw Exception(e.kind(), fmt::format("step {}, {}: rank {} {} {}: {}", step_,
                                          current_ ? name_of(*current_) : "before the first task",
                                          rank_, verb, description_of(message), e.what()));
  }
}

void PipelineRunner::step() {
  const std::vector<Task>& order = schedule_.order[static_cast<std::size_t>(rank_)];
  for (std::size_t i = 0; i < order.size(); ++i) {
    current_ = &order[i];
    wait_for_inputs(order[i]);
    make_room_for_outputs(order[i]);
    work_.compute(order[i], step_);
    send_outputs(order[i]);
    if (ends_stage_[i] && schedule_.trains) work_.update(order[i].stage, step_);
  }
  if (schedule_.barrier) transfers_.barrier();
  ++step_;
}

void PipelineRunner::finish() {
  for (Channel& channel : sends_) {
    while (!channel.in_flight.empty()) complete_oldest_send(channel);
  }
}

void PipelineRunner::start_receives() {
  for (Channel& channel : receives_) start_receives(channel);
}

/// Starts receives of messages up to receives_ahead after the next one, in the order of their use.
void PipelineRunner::start_receives(Channel& channel) {
  const std::size_t in_step = channel.micro_batches.size();
  const std::size_t limit = channel.used + 1 + static_cast<std::size_t>(schedule_.receives_ahead);
  for (; channel.started < limit; ++channel.started) {
    const auto step = static_cast<std::int64_t>(channel.started / in_step);
    const Message message{channel.from, channel.to,
                          channel.micro_batches[channel.started % in_step]};
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
    communicate("waits for", message, [&] { channel.in_flight.front().transfer->wait(); });
    channel.in_flight.erase(channel.in_flight.begin());
    ++channel.used;
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

void PipelineRunner::send_outputs(const Task& task) {
  for (const Message& message : remote(outputs_of(schedule_, task))) {
    Channel& channel = channel_of(sends_, message);
    communicate("sends", message, [&] {
      channel.in_flight.push_back(
          {message, step_, transfers_.send(message, channel.peer, work_.output(message, step_))});
    });
    if (schedule_.sends_in_flight == 0) complete_oldest_send(channel);
  }
}

void PipelineRunner::complete_oldest_send(Channel& channel) {
  Channel::InFlight& oldest = channel.in_flight.front();
  communicate("sends", oldest.message, [&] { oldest.transfer->wait(); });
  work_.sent(oldest.message, oldest.step);
  channel.in_flight.erase(channel.in_flight.begin());
}

void PipelineRunner::reap_sends() {
  for (Channel& channel : sends_) {
    while (!channel.in_flight.empty() && channel.in_flight.front().transfer->done()) {
      complete_oldest_send(channel);
    }
  }
}

}  // namespace gradwire::pipeline
