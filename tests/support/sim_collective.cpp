#include "tests/support/sim_collective.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include <fmt/format.h>

#include "gradwire/base/element.h"
#include "gradwire/engine/simulated_job.h"

namespace gradwire::test {
namespace {

double combined(double a, double b, ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::mean:
      return a + b;
    case ReduceOp::min:
      return std::min(a, b);
    case ReduceOp::max:
      return std::max(a, b);
    case ReduceOp::product:
      return a * b;
    default:  // Bitwise operations have tests of their own.
      return a;
  }
}

double reduced_at(const Case& c, const std::vector<Memory>& inputs, std::size_t i) {
  const std::size_t at = i * size_of(c.type);
  double result = load_element(inputs.front().data() + at, c.type);
  for (std::size_t r = 1; r < inputs.size(); ++r) {
    result = combined(result, load_element(inputs[r].data() + at, c.type), c.op);
  }
  return c.op == ReduceOp::mean ? result / static_cast<double>(inputs.size()) : result;
}

double expected_at(const Case& c, Rank rank, const std::vector<Memory>& inputs, std::size_t i) {
  const auto element = [&](Rank of, std::size_t at) {
    return load_element(inputs[static_cast<std::size_t>(of)].data() + at * size_of(c.type), c.type);
  };
  const std::size_t mine = static_cast<std::size_t>(rank) * c.count;
  switch (c.collective) {
    case schedule::Collective::all_reduce:
    case schedule::Collective::reduce:
      return reduced_at(c, inputs, i);
    case schedule::Collective::reduce_scatter:
      return reduced_at(c, inputs, mine + i);
    case schedule::Collective::all_gather:
    case schedule::Collective::gather:
      return element(static_cast<Rank>(i / c.count), i % c.count);
    case schedule::Collective::scatter:
      return element(c.root, mine + i);
    case schedule::Collective::all_to_all:
      return element(static_cast<Rank>(i / c.count), mine + i % c.count);
    case schedule::Collective::broadcast:
    case schedule::Collective::point_to_point:
      return element(c.root, i);
    case schedule::Collective::barrier:
      return 0;
  }
  return 0;
}

}  // namespace

std::size_t Case::input_count() const {
  const bool one =
      collective == schedule::Collective::all_gather || collective == schedule::Collective::gather;
  return one ? count : total();
}

std::size_t Case::output_count() const {
  const bool one = collective == schedule::Collective::reduce_scatter ||
                   collective == schedule::Collective::scatter;
  return one ? count : total();
}

schedule::Schedule Case::schedule() const {
  return value_or_throw(schedule::make_schedule({collective, root}, algorithm, hosts()));
}

std::string Case::describe() const {
  return fmt::format("{} by {} of {} {} ({}) on {} ranks, root {}, lane {}{}", name_of(collective),
                     algorithm, count, name_of(type), name_of(op), ranks, root, lane,
                     in_place ? "" : ", out of place");
}

Memory make_input(const Case& c, Rank rank, std::uint64_t seed) {
  Random random(seed * 1000003 + static_cast<std::uint64_t>(rank));
  const std::size_t size = size_of(c.type);
  Memory memory(c.input_count() * size);
  for (std::size_t at = 0; at < memory.size(); at += size) {
    // Small integers: every sum, and every product of one and two, is exact in every type.
    const bool product = c.op == ReduceOp::product;
    auto value = static_cast<double>(product ? 1 + random.below(2) : random.below(9));
    if (c.rough) value += random.unit();
    store_element(memory.data() + at, c.type, value);
  }
  return memory;
}

std::vector<Memory> make_inputs(const Case& c, std::uint64_t seed) {
  std::vector<Memory> inputs;
  for (Rank r = 0; r < c.ranks; ++r) inputs.push_back(make_input(c, r, seed));
  return inputs;
}

bool is_right(const Case& c, Rank rank, const std::vector<Memory>& inputs, const Memory& output) {
  const std::size_t size = size_of(c.type);
  if (c.ends_at_root() && rank != c.root) return true;
  for (std::size_t i = 0, count = c.output_count(); i < count; ++i) {
    std::byte expected[8];
    store_element(expected, c.type, expected_at(c, rank, inputs, i));
    if (std::memcmp(expected, output.data() + i * size, size) != 0) return false;
  }
  return true;
}

void expect_right(const Case& c, Rank rank, const std::vector<Memory>& inputs,
                  const Memory& output) {
  EXPECT_TRUE(is_right(c, rank, inputs, output)) << c.describe() << ", rank " << rank;
}

engine::OperationRequest make_request(const Case& c, Rank rank, const Memory& input, Memory& output,
                                      std::shared_ptr<engine::Completion> completion) {
  engine::OperationRequest request;
  request.program = engine::CompiledProgram::compile(c.schedule(), rank);
  request.fingerprint = {
      .collective = c.collective, .type = c.type, .op = c.op, .root = c.root, .count = c.total()};
  request.fingerprint.set_algorithm(c.algorithm);
  const bool aliased =
      c.in_place && (c.collective == schedule::Collective::all_reduce ||
                     (c.collective == schedule::Collective::reduce && rank == c.root));
  if (aliased) output = input;
  if (c.collective == schedule::Collective::broadcast && rank == c.root) output = input;
  output.resize(c.output_count() * size_of(c.type));
  request.input = aliased ? output.data() : input.data();
  request.output = output.data();
  request.timeout = std::chrono::seconds(60);
  request.lane = c.lane;
  request.completion = std::move(completion);
  return request;
}

CaseResult simulate(const Case& c, const std::vector<Memory>& inputs,
                    const net::SimOptions& network, const engine::ExecutorOptions& options) {
  engine::SimulatedJob job(c.hosts(), network, options);
  const std::vector<Memory> before = inputs;
  CaseResult result{.outputs = std::vector<Memory>(inputs.size()), .payload_bytes = {}};
  std::vector<std::shared_ptr<Outcome>> outcomes;
  for (Rank r = 0; r < c.ranks; ++r) {
    const auto i = static_cast<std::size_t>(r);
    outcomes.push_back(std::make_shared<Outcome>());
    job.executor(r).post(make_request(c, r, inputs[i], result.outputs[i], outcomes[i]), job.now());
  }
  EXPECT_TRUE(job.run(Time(std::chrono::minutes(1)), [&] {
    return std::ranges::all_of(outcomes, [](const auto& o) { return o->done(); });
  }));
  for (Rank r = 0; r < c.ranks; ++r) {
    const Outcome& outcome = *outcomes[static_cast<std::size_t>(r)];
    EXPECT_EQ(outcome.successes, 1) << "rank " << r << ": " << outcome.last.message;
    result.payload_bytes.push_back(job.executor(r).traffic().payload_bytes);
  }
  EXPECT_EQ(inputs, before) << "an input was written";
  return result;
}

std::vector<std::size_t> scheduled_bytes(const Case& c) {
  std::vector<std::size_t> bytes(static_cast<std::size_t>(c.ranks));
  for (Rank r = 0; r < c.ranks; ++r) {
    Memory output;
    const Memory input(c.input_count() * size_of(c.type));
    engine::OperationRequest request = make_request(c, r, input, output, nullptr);
    const auto program = request.program;
    engine::Operation operation({}, std::move(request));
    Memory scratch(operation.scratch_bytes());
    operation.bind_scratch(scratch.data());
    for (schedule::OpIndex op = 0; op < program->program.ops.size(); ++op) {
      const bool sends = program->program.ops[op].kind == schedule::OpKind::send;
      if (sends) bytes[static_cast<std::size_t>(r)] += operation.size(op);
    }
  }
  return bytes;
}

}  // namespace gradwire::test
