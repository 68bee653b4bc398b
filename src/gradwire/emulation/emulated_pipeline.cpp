#include "gradwire/emulation/emulated_pipeline.h"

#include <algorithm>
#include <chrono>

#include <fmt/format.h>

#include "gradwire/base/clock.h"
#include "gradwire/base/error.h"
#include "gradwire/base/priorities.h"
#include "gradwire/base/statistics.h"
#include "gradwire/pipeline/communicator_transfers.h"
#include "gradwire/step/bucket_plan.h"

namespace gradwire::emulation {
namespace {

using pipeline::Compute;
using pipeline::Message;

std::int64_t stamp_of(const pipeline::PipelineSchedule& schedule, const Message& message,
                      std::int64_t step) {
  const std::int64_t pair = message.from * std::int64_t{schedule.stages()} + message.to;
  const std::int64_t in_step = pair * schedule.micro_batches + message.micro_batch;
  return step * schedule.stages() * schedule.stages() * schedule.micro_batches + in_step;
}

/// Measures messages between neighbours. Collective: every rank calls the same members.
class TransferMeasurement {
 public:
  TransferMeasurement(Communicator& communicator, std::size_t bytes, Alarm& alarm)
      : communicator_(communicator), alarm_(alarm), buffer_(std::max<std::size_t>(bytes, 1)) {}

  TransferTime measure() {
    TransferTime slowest;
    for (Rank to = 1; to < communicator_.size(); ++to) {
      median_seconds(to, 1);  // The first messages are slower.
      const double one = median_seconds(to, 1);
      const double many = median_seconds(to, 1 + kMessages);
      slowest.transfer = std::max(slowest.transfer, (many - one) / kMessages);
      slowest.latency = std::max(slowest.latency, one - (many - one) / kMessages);
    }
    // The word that starts the sender takes about as long as the latency of a message.
    return {max_over_ranks(communicator_, slowest.transfer),
            max_over_ranks(communicator_, slowest.latency / 2)};
  }

 private:
  static constexpr int kRounds = 5;
  static constexpr int kMessages = 8;

  /// Median of the seconds in which rank `to` receives `count` messages from the rank before, which
  /// starts when it says so; 0 on the other ranks.
  double median_seconds(Rank to, int count) {
    communicator_.barrier().wait();
    std::vector<double> times;
    for (int round = 0; round < kRounds; ++round) times.push_back(run(to, count));
    return median(std::move(times));
  }

  double run(Rank to, int count) {
    char word = 0;
    std::vector<Work> all;
    const Time begin = alarm_.now();
    if (communicator_.rank() + 1 == to) {
      communicator_.recv({&word, 1, DataType::uint8, nullptr}, to).wait();
      for (int i = 0; i < count; ++i) all.push_back(communicator_.send(lend(), to));
    } else if (communicator_.rank() == to) {
      all.push_back(communicator_.send({&word, 1, DataType::uint8}, to - 1));
      for (int i = 0; i < count; ++i) all.push_back(communicator_.recv(lend(), to - 1));
    }
    for (const Work& work : all) work.wait();
    return communicator_.rank() == to ? seconds(alarm_.now() - begin) : 0;
  }

  LentSpan lend() { return {buffer_.data(), buffer_.size(), DataType::uint8, nullptr}; }

  Communicator& communicator_;
  Alarm& alarm_;
  std::vector<char> buffer_;
};

}  // namespace

double max_over_ranks(Communicator& communicator, double value) {
  communicator.all_reduce({&value, 1, DataType::float64, nullptr}, ReduceOp::max).wait();
  return value;
}

EmulatedReductions::EmulatedReductions(std::shared_ptr<Communicator> group, std::size_t bytes,
                                       bool prioritizes)
    : group_(std::move(group)), prioritizes_(prioritizes), gradients_(bytes / sizeof(float)) {}

void EmulatedReductions::start() {
  wait();
  constexpr std::size_t kBucket = step::kBucketBytes / sizeof(float);
  for (std::size_t begin = 0; begin < gradients_.size(); begin += kBucket) {
    const std::size_t count = std::min(kBucket, gradients_.size() - begin);
    const int priority = prioritizes_ ? reduction_priority(works_.size()) : 0;
    works_.push_back(
        group_->all_reduce({gradients_.data() + begin, count, DataType::float32, nullptr},
                           ReduceOp::sum, {.priority = priority}));
  }
}

void EmulatedReductions::wait() {
  for (const Work& work : works_) work.wait();
  works_.clear();
}

EmulatedStages::EmulatedStages(const pipeline::PipelineSchedule& schedule,
                               const pipeline::PipelineCosts& costs, std::size_t message_bytes,
                               std::int64_t steps, Alarm& alarm, const EmulatedReplicas& replicas,
                               bool prioritizes)
    : schedule_(schedule),
      costs_(costs),
      bytes_(message_bytes),
      steps_(steps),
      device_(alarm),
      each_micro_batch_(replicas.each_micro_batch) {
  if (!replicas.group) return;
  for (pipeline::Stage stage = 0; stage < schedule.stages(); ++stage)
    reductions_.try_emplace(stage, replicas.group, replicas.gradient_bytes, prioritizes);
}

EmulatedStages::Buffer EmulatedStages::take_buffer() {
  if (free_.empty()) {
    return std::make_shared<std::vector<std::int64_t>>(bytes_ / sizeof(std::int64_t) + 1);
  }
  Buffer buffer = std::move(free_.back());
  free_.pop_back();
  return buffer;
}

std::optional<LentSpan> EmulatedStages::receive_buffer(const Message& message, std::int64_t step) {
  if (step >= steps_) return std::nullopt;
  const Buffer& buffer = buffers_[{message, step}] = take_buffer();
  return LentSpan{buffer->data(), buffer->size(), DataType::int64, buffer};
}

void EmulatedStages::compute(const pipeline::Task& task, std::int64_t step) {
  for (const Message& message : pipeline::inputs_of(schedule_, task)) check_input(message, step);
  if (task.compute == Compute::forward) max_kept_ = std::max(max_kept_, ++kept_);
  if (updating_.erase(task.stage) > 0) reductions_.at(task.stage).wait();
  device_.resume();
  device_.compute(duration_of(costs_.of(task.stage).of(task.compute)));
  const bool ends = task.compute == Compute::backward || task.compute == Compute::backward_weight;
  if (ends || !schedule_.trains) --kept_;
  if (ends && each_micro_batch_ && !reductions_.empty()) reductions_.at(task.stage).start();
}

void EmulatedStages::update(pipeline::Stage stage, std::int64_t /*step*/) {
  if (reductions_.empty()) return;
  if (!each_micro_batch_) reductions_.at(stage).start();
  updating_.insert(stage);
}

void EmulatedStages::finish() {
  for (auto& [stage, reductions] : reductions_) reductions.wait();
}

void EmulatedStages::check_input(const Message& message, std::int64_t step) {
  auto arrived = buffers_.extract({message, step});
  if (arrived.empty()) return;  // From a stage of the same rank.
  const std::int64_t stamp = arrived.mapped()->front();
  if (stamp != stamp_of(schedule_, message, step)) {
    throw Exception(ErrorKind::corrupted,
                    fmt::format("step {}, micro-batch {} from stage {} to stage {}: the message is "
                                "another one, number {}",
                                step, message.micro_batch, message.from, message.to, stamp));
  }
  free_.push_back(std::move(arrived.mapped()));
}

LentConstSpan EmulatedStages::output(const Message& message, std::int64_t step) {
  const Buffer& buffer = buffers_[{message, step}] = take_buffer();
  buffer->front() = stamp_of(schedule_, message, step);
  return {buffer->data(), buffer->size(), DataType::int64, buffer};
}

void EmulatedStages::sent(const Message& message, std::int64_t step) {
  free_.push_back(std::move(buffers_.extract({message, step}).mapped()));
}

TransferTime measure_transfer(Communicator& communicator, std::size_t bytes, Alarm& alarm) {
  return TransferMeasurement(communicator, bytes, alarm).measure();
}

PipelineFigures measure_pipeline(const std::shared_ptr<Communicator>& communicator,
                                 const pipeline::PipelineSchedule& schedule,
                                 const PipelineMeasurementOptions& options,
                                 const TransferTime& transfer, Alarm& alarm) {
  pipeline::PipelineCosts costs =
      pipeline::divided_costs(options.compute, schedule.ranks(), schedule.stages());
  costs.transfer = transfer.transfer;
  costs.latency = transfer.latency;
  const int steps = options.warmup + options.steps;
  EmulatedStages stages(schedule, costs, options.message_bytes, steps, alarm, options.replicas,
                        options.prioritizes);
  const auto transfers =
      pipeline::communicator_transfers(communicator, schedule, options.prioritizes);
  pipeline::PipelineRunner runner(schedule, communicator->rank(), stages, *transfers);
  communicator->barrier().wait();
  std::vector<double> durations;
  Time before = alarm.now();
  for (int i = 0; i < steps; ++i) {
    runner.step();
    const Time now = alarm.now();
    if (i >= options.warmup) durations.push_back(seconds(now - before));
    before = now;
  }
  runner.finish();
  stages.finish();
  PipelineFigures figures;
  figures.step = max_over_ranks(*communicator, median(std::move(durations)));
  figures.kept = static_cast<int>(max_over_ranks(*communicator, stages.max_kept()));
  const pipeline::StageCosts& each = options.compute;
  figures.ideal =
      schedule.micro_batches * (each.forward + (schedule.trains ? each.of(Compute::backward) : 0));
  figures.bubble = std::max(0.0, 1 - figures.ideal / figures.step);
  figures.predicted =
      simulate(pipeline::with_bounded_receives(schedule), costs, std::max(steps, 2)).step_seconds;
  return figures;
}

}  // namespace gradwire::emulation
