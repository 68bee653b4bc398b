#include "gradwire/engine/simulation.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "gradwire/base/check.h"
#include "gradwire/engine/simulated_job.h"

namespace gradwire::engine {
namespace {

/// Returns a callback that records when each op of a rank begins and ends.
std::function<void(schedule::OpIndex)> watch(const SimulatedJob& job,
                                             std::vector<schedule::Interval>& ops) {
  std::vector<bool> begun(ops.size());
  return [&job, &ops, begun](schedule::OpIndex op) mutable {
    const Duration now = job.now().time_since_epoch();
    if (!begun[op]) ops[op].begin = now;
    begun[op] = true;
    ops[op].end = now;
  };
}

/// Counts the operations that have succeeded.
class Counter final : public Completion {
 public:
  void succeeded() override { ++count_; }
  void failed(const Error&) override {}
  int count() const { return count_; }

 private:
  int count_ = 0;
};

/// Memory of one rank, filled with small integers that depend on rank and position.
struct RankMemory {
  std::vector<float> input;
  std::vector<float> output;
};

float sample(Rank rank, std::size_t i) {
  return static_cast<float>((i * 7 + static_cast<std::size_t>(rank) * 13) % 17);
}

struct Sizes {
  std::size_t input;
  std::size_t output;
};

Sizes sizes_of(const schedule::Schedule& schedule, std::size_t elements) {
  const std::size_t part = elements / static_cast<std::size_t>(schedule.ranks);
  switch (schedule.spec.collective) {
    case schedule::Collective::all_gather:
    case schedule::Collective::gather:
      return {part, elements};
    case schedule::Collective::scatter:
    case schedule::Collective::reduce_scatter:
      return {elements, part};
    case schedule::Collective::broadcast:
      return {0, elements};
    case schedule::Collective::all_reduce:
    case schedule::Collective::reduce:
    case schedule::Collective::all_to_all:
    case schedule::Collective::barrier:
    case schedule::Collective::point_to_point:
      break;
  }
  return {elements, elements};
}

RankMemory make_memory(const schedule::Schedule& schedule, Rank rank, std::size_t elements) {
  const Sizes sizes = sizes_of(schedule, elements);
  RankMemory memory{std::vector<float>(sizes.input), std::vector<float>(sizes.output)};
  for (std::size_t i = 0; i < memory.input.size(); ++i) memory.input[i] = sample(rank, i);
  if (schedule.spec.collective == schedule::Collective::broadcast && schedule.spec.root == rank) {
    for (std::size_t i = 0; i < elements; ++i) memory.output[i] = sample(rank, i);
  }
  return memory;
}

float expected(const schedule::Schedule& schedule, Rank rank, std::size_t i, std::size_t elements) {
  const std::size_t part = elements / static_cast<std::size_t>(schedule.ranks);
  const auto sum_at = [&](std::size_t position) {
    float sum = 0;
    for (Rank r = 0; r < schedule.ranks; ++r) sum += sample(r, position);
    return sum;
  };
  switch (schedule.spec.collective) {
    case schedule::Collective::all_reduce:
    case schedule::Collective::reduce:
      return sum_at(i);
    case schedule::Collective::reduce_scatter:
      return sum_at(static_cast<std::size_t>(rank) * part + i);
    case schedule::Collective::all_gather:
    case schedule::Collective::gather:
      return sample(static_cast<Rank>(i / part), i % part);
    case schedule::Collective::scatter:
      return sample(schedule.spec.root, static_cast<std::size_t>(rank) * part + i);
    case schedule::Collective::all_to_all:
      return sample(static_cast<Rank>(i / part), static_cast<std::size_t>(rank) * part + i % part);
    case schedule::Collective::broadcast:
    case schedule::Collective::point_to_point:
      return sample(schedule.spec.root, i);
    case schedule::Collective::barrier:
      return 0;
  }
  return 0;
}

bool is_right(const schedule::Schedule& schedule, Rank rank, const RankMemory& memory,
              std::size_t elements) {
  const schedule::CollectiveSpec& spec = schedule.spec;
  if (spec.collective == schedule::Collective::point_to_point && rank != spec.target) return true;
  const bool at_root = spec.collective == schedule::Collective::reduce ||
                       spec.collective == schedule::Collective::gather;
  if (at_root && rank != spec.root) return true;
  for (std::size_t i = 0; i < memory.output.size(); ++i) {
    if (memory.output[i] != expected(schedule, rank, i, elements)) return false;
  }
  return true;
}

}  // namespace

ScheduleSimulation simulate(const schedule::Schedule& schedule, const topology::Topology& topology,
                            std::size_t elements, std::size_t segment_bytes) {
  GRADWIRE_CHECK(schedule.ranks == topology.ranks());
  ExecutorOptions options;
  options.limits.segment_bytes = segment_bytes;
  options.dead_peer_timeout = std::chrono::hours(1);
  SimulatedJob job(topology, {.unit_bytes = 16 * 1024}, options);
  ScheduleSimulation result;
  result.ops.resize(static_cast<std::size_t>(job.ranks()));
  std::vector<RankMemory> memories;
  const auto counter = std::make_shared<Counter>();
  for (Rank r = 0; r < job.ranks(); ++r) memories.push_back(make_memory(schedule, r, elements));
  for (Rank r = 0; r < job.ranks(); ++r) {
    RankMemory& memory = memories[static_cast<std::size_t>(r)];
    OperationRequest request;
    request.program = CompiledProgram::compile(schedule, r);
    std::vector<schedule::Interval>& ops = result.ops[static_cast<std::size_t>(r)];
    ops.resize(request.program->program.ops.size());
    request.on_progress = watch(job, ops);
    request.fingerprint = {.collective = schedule.spec.collective,
                           .type = DataType::float32,
                           .root = schedule.spec.root,
                           .count = elements};
    request.fingerprint.set_algorithm(schedule.name);
    request.input = reinterpret_cast<const std::byte*>(memory.input.data());
    request.output = reinterpret_cast<std::byte*>(memory.output.data());
    request.timeout = std::chrono::hours(10);
    request.completion = counter;
    job.executor(r).post(std::move(request), job.now());
  }
  const bool done =
      job.run(Time(std::chrono::hours(1)), [&] { return counter->count() == job.ranks(); });
  result.time = job.now().time_since_epoch();
  result.correct = done;
  for (Rank r = 0; r < job.ranks(); ++r) {
    result.payload_bytes.push_back(job.executor(r).traffic().payload_bytes);
    result.correct =
        result.correct && is_right(schedule, r, memories[static_cast<std::size_t>(r)], elements);
  }
  return result;
}

}  // namespace gradwire::engine
