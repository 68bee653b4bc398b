#include "tests/engine/simulation/sim_collective.h"

#include <cmath>
#include <cstring>

#include <fmt/format.h>

#include "gradwire/base/element_value.h"

namespace gradwire::test {
namespace {

double combined(const std::vector<double>& values, ReduceOp op) {
  double result = values.front();
  for (std::size_t i = 1; i < values.size(); ++i) {
    switch (op) {
      case ReduceOp::sum:
      case ReduceOp::mean:
        result += values[i];
        break;
      case ReduceOp::min:
        result = std::min(result, values[i]);
        break;
      case ReduceOp::max:
        result = std::max(result, values[i]);
        break;
      case ReduceOp::product:
        result *= values[i];
        break;
      default:  // Bitwise operations have separate tests.
        break;
    }
  }
  return op == ReduceOp::mean ? result / static_cast<double>(values.size()) : result;
}

double reduced_at(const Case& c, const std::vector<Memory>& inputs, std::size_t i) {
  std::vector<double> values;
  for (const Memory& input : inputs)
    values.push_back(load_element(input.data() + i * size_of(c.type), c.type));
  return combined(values, c.op);
}

double expected_at(const Case& c, Rank rank, const std::vector<Memory>& inputs, std::size_t i) {
  const auto element = [&](Rank of, std::size_t at) {
    return load_element(inputs[static_cast<std::size_t>(of)].data() + at * size_of(c.type), c.type);
  };
  const std::size_t mine = static_cast<std::size_t>(rank) * c.count;
  switch (c.collective) {
    case Collective::all_reduce:
    case Collective::reduce:
      return reduced_at(c, inputs, i);
    case Collective::reduce_scatter:
      return reduced_at(c, inputs, mine + i);
    case Collective::all_gather:
    case Collective::gather:
      return element(static_cast<Rank>(i / c.count), i % c.count);
    case Collective::scatter:
      return element(c.root, mine + i);
    case Collective::all_to_all:
      return element(static_cast<Rank>(i / c.count), mine + i % c.count);
    case Collective::broadcast:
    case Collective::point_to_point:
      return element(c.root, i);
    case Collective::barrier:
      return 0;
  }
  return 0;
}

}  // namespace

std::size_t Case::input_count() const {
  const bool one = collective == Collective::all_gather || collective == Collective::gather;
  return one ? count : total();
}

std::size_t Case::output_count() const {
  const bool one = collective == Collective::reduce_scatter || collective == Collective::scatter;
  return one ? count : total();
}

Schedule Case::schedule() const {
  return value_or_throw(make_schedule({collective, root}, algorithm,
                                      topology ? *topology : Topology::uniform(ranks)));
}

std::string Case::describe() const {
  return fmt::format("{} by {} of {} {} ({}) on {} ranks, root {}, lane {}{}", name_of(collective),
                     algorithm, count, name_of(type), name_of(op), ranks, root, lane,
                     in_place ? "" : ", out of place");
}

Memory make_input(const Case& c, Rank rank, std::uint64_t seed) {
  Random random(seed * 1000003 + static_cast<std::uint64_t>(rank));
  Memory memory(c.input_count() * size_of(c.type));
  for (std::size_t i = 0; i < c.input_count(); ++i) {
    // Small integers: every sum, and every product of ones and twos, is exact in every type.
    const bool product = c.op == ReduceOp::product;
    auto value = static_cast<double>(product ? 1 + random.below(2) : random.below(9));
    if (c.rough) value += random.unit();
    store_element(memory.data() + i * size_of(c.type), c.type, value);
  }
  return memory;
}

bool is_right(const Case& c, Rank rank, const std::vector<Memory>& inputs, const Memory& output) {
  const std::size_t size = size_of(c.type);
  if (c.ends_at_root() && rank != c.root) return true;
  for (std::size_t i = 0; i < c.output_count(); ++i) {
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

OperationRequest make_request(const Case& c, Rank rank, const Memory& input, Memory& output,
                              std::shared_ptr<Completion> completion) {
  OperationRequest request;
  request.program = CompiledProgram::compile(c.schedule(), rank);
  request.fingerprint = {
      .collective = c.collective, .type = c.type, .op = c.op, .root = c.root, .count = c.total()};
  request.fingerprint.set_algorithm(c.algorithm);
  const bool aliased = c.in_place && (c.collective == Collective::all_reduce ||
                                      (c.collective == Collective::reduce && rank == c.root));
  if (aliased) output = input;
  if (c.collective == Collective::broadcast && rank == c.root) output = input;
  output.resize(c.output_count() * size_of(c.type));
  request.input = aliased ? output.data() : input.data();
  request.output = output.data();
  request.timeout = std::chrono::seconds(60);
  request.lane = c.lane;
  request.completion = std::move(completion);
  return request;
}

}  // namespace gradwire::test
