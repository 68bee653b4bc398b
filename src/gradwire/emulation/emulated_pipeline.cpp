#include "gradwire/emulation/emulated_pipeline.h"

#include <algorithm>
#include <chrono>
#include <functional>

#include <fmt/format.h>

#include "gradwire/base/error.h"

namespace gradwire::emulation {
namespace {

using pipeline::Compute;
using pipeline::Message;

double seconds(Duration duration) {
  return std::chrono::duration<double>(duration).count();
}

Duration duration_of(double seconds) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

double max_over_ranks(Communicator& communicator, double value) {
  communicator.all_reduce({&value, 1, DataType::float64, nullptr}, ReduceOp::max).wait();
  return value;
}

std::int64_t stamp_of(const pipeline::PipelineSchedule& schedule, const Message& message,
                      std::int64_t step) {
  const std::int64_t pair = message.from * std::int64_t{schedule.stages()} + message.to;
  const std::int64_t in_step = pair * schedule.micro_batches + message.micro_batch;
  return step * schedule.stages() * schedule.stages() * schedule.micro_batches + in_step;
}

/// Sends `count` messages from one rank to another and a word back. Returns the seconds until
/// then, on the sender; 0 on the others.
double time_of_messages(Communicator& communicator, Rank from, Rank to, int count,
                        std::vector<char>& buffer, Alarm& alarm) {
  char word = 0;
  const Time begin = alarm.now();
  std::vector<Work> all;
  if (communicator.rank() == from) {
    for (int i = 0; i < count; ++i) {
      all.push_back(communicator.send({buffer.data(), buffer.size(), DataType::uint8}, to));
    }
    for (const Work& work : all) work.wait();
    communicator.recv({&word, 1, DataType::uint8, nullptr}, to).wait();
    return seconds(alarm.now() - begin);
  }
  if (communicator.rank() == to) {
    for (int i = 0; i < count; ++i) {
      communicator.recv({buffer.data(), buffer.size(), DataType::uint8, nullptr}, from).wait();
    }
    communicator.send({&word, 1, DataType::uint8}, from).wait();
  }
  return 0;
}

double median_time(int rounds, const std::function<double()>& measure) {
  std::vector<double> times;
  for (int i = 0; i < rounds; ++i) times.push_back(measure());
  return median(std::move(times));
}

}  // namespace

EmulatedStages::EmulatedStages(const pipeline::PipelineSchedule& schedule,
                               const pipeline::PipelineCosts& costs, std::size_t message_bytes,
                               std::int64_t steps, Alarm& alarm)
    : schedule_(schedule), costs_(costs), bytes_(message_bytes), steps_(steps), device_(alarm) {}

EmulatedStages::Buffer EmulatedStages::take_buffer() {
  if (free_.empty()) return Buffer(bytes_ / sizeof(std::int64_t) + 1);
  Buffer buffer = std::move(free_.back());
  free_.pop_back();
  return buffer;
}

std::optional<LentSpan> EmulatedStages::receive_buffer(const Message& message, std::int64_t step) {
  if (step >= steps_) return std::nullopt;
  Buffer& buffer = buffers_[{message, step}] = take_buffer();
  return LentSpan{buffer.data(), buffer.size(), DataType::int64, nullptr};
}

void EmulatedStages::compute(const pipeline::Task& task, std::int64_t step) {
  for (const Message& message : pipeline::inputs_of(schedule_, task)) check_input(message, step);
  if (task.compute == Compute::forward) most_kept_ = std::max(most_kept_, ++kept_);
  device_.resume();
  device_.compute(duration_of(costs_.of(task.stage).of(task.compute)));
  const bool ends = task.compute == Compute::backward || task.compute == Compute::backward_weight;
  if (ends || !schedule_.trains) --kept_;
}

void EmulatedStages::check_input(const Message& message, std::int64_t step) {
  auto arrived = buffers_.extract({message, step});
  if (arrived.empty()) return;  // From a stage of the same rank.
  const std::int64_t stamp = arrived.mapped().front();
  if (stamp != stamp_of(schedule_, message, step)) {
    throw Exception(ErrorKind::corrupted,
                    fmt::format("step {}, micro-batch {} from stage {} to stage {}: the message is "
                                "another one, number {}",
                                step, message.micro_batch, message.from, message.to, stamp));
  }
  free_.push_back(std::move(arrived.mapped()));
}

LentConstSpan EmulatedStages::output(const Message& message, std::int64_t step) {
  Buffer& buffer = buffers_[{message, step}] = take_buffer();
  buffer.front() = stamp_of(schedule_, message, step);
  return {buffer.data(), buffer.size(), DataType::int64};
}

void EmulatedStages::sent(const Message& message, std::int64_t step) {
  free_.push_back(std::move(buffers_.extract({message, step}).mapped()));
}

TransferTime measure_transfer(Communicator& communicator, std::size_t bytes, Alarm& alarm) {
  constexpr int kRounds = 5;
  constexpr int kMessages = 8;
  std::vector<char> buffer(std::max<std::size_t>(bytes, 1));
  TransferTime slowest;
  for (Rank rank = 0; rank + 1 < communicator.size(); ++rank) {
    const auto measure = [&](int count) {
      communicator.barrier().wait();
      return median_time(kRounds, [&] {
        return time_of_messages(communicator, rank, rank + 1, count, buffer, alarm);
      });
    };
    measure(1);  // The first messages are slower.
    const double one = measure(1);
    const double many = measure(1 + kMessages);
    slowest.transfer = std::max(slowest.transfer, (many - one) / kMessages);
    slowest.latency = std::max(slowest.latency, one - (many - one) / kMessages);
  }
  // A word back takes about as long as the latency of the message.
  return {max_over_ranks(communicator, slowest.transfer),
          max_over_ranks(communicator, slowest.latency / 2)};
}

pipeline::PipelineCosts costs_of_stages(int ranks, int stages, const pipeline::StageCosts& rank,
                                        const TransferTime& transfer) {
  pipeline::PipelineCosts costs{.transfer = transfer.transfer, .latency = transfer.latency};
  const double share = static_cast<double>(ranks) / stages;
  costs.stages.assign(
      static_cast<std::size_t>(stages),
      {rank.forward * share, rank.backward_input * share, rank.backward_weight * share});
  return costs;
}

PipelineFigures measure_pipeline(Communicator& communicator,
                                 const pipeline::PipelineSchedule& schedule,
                                 const PipelineMeasurementOptions& options,
                                 const TransferTime& transfer, Alarm& alarm) {
  const pipeline::PipelineCosts costs =
      costs_of_stages(schedule.ranks(), schedule.stages(), options.compute, transfer);
  const int steps = options.warmup + options.steps;
  EmulatedStages stages(schedule, costs, options.message_bytes, steps, alarm);
  const auto transfers = pipeline::communicator_transfers(communicator, schedule);
  pipeline::PipelineRunner runner(schedule, communicator.rank(), stages, *transfers);
  communicator.barrier().wait();
  std::vector<double> durations;
  Time before = alarm.now();
  for (int i = 0; i < steps; ++i) {
    runner.step();
    const Time now = alarm.now();
    if (i >= options.warmup) durations.push_back(seconds(now - before));
    before = now;
  }
  runner.finish();
  PipelineFigures figures;
  figures.step = max_over_ranks(communicator, median(std::move(durations)));
  figures.kept = static_cast<int>(max_over_ranks(communicator, stages.most_kept()));
  const pipeline::StageCosts& each = options.compute;
  figures.ideal =
      schedule.micro_batches * (each.forward + (schedule.trains ? each.of(Compute::backward) : 0));
  figures.bubble = std::max(0.0, 1 - figures.ideal / figures.step);
  figures.predicted =
      simulate(pipeline::with_bounded_receives(schedule), costs, std::max(steps, 2)).step_seconds;
  return figures;
}

}  // namespace gradwire::emulation
