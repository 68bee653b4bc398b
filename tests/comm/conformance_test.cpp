#include <algorithm>

#include <gtest/gtest.h>

#include "tests/comm/local_job.h"
#include "tests/engine/simulation/sim_collective.h"

/// The same collectives over simulated streams and over sockets: every rank's result right, the two
/// the same bit for bit, and again on the next run.
namespace gradwire::test {
namespace {

std::vector<Memory> inputs_of(const Case& c) {
  std::vector<Memory> inputs;
  for (Rank r = 0; r < c.ranks; ++r) inputs.push_back(make_input(c, r, 11));
  return inputs;
}

std::vector<Memory> simulated(const Case& c) {
  SimulatedJob job(std::vector<SimPort>(static_cast<std::size_t>(c.ranks)), {.seed = 5}, {});
  const std::vector<Memory> inputs = inputs_of(c);
  std::vector<Memory> outputs(static_cast<std::size_t>(c.ranks));
  std::vector<std::shared_ptr<Outcome>> outcomes;
  for (Rank r = 0; r < c.ranks; ++r) {
    const auto i = static_cast<std::size_t>(r);
    outcomes.push_back(std::make_shared<Outcome>());
    job.executor(r).post(make_request(c, r, inputs[i], outputs[i], outcomes[i]), job.now());
  }
  EXPECT_TRUE(job.run(Time(std::chrono::minutes(1)), [&] {
    return std::ranges::all_of(outcomes, [](const auto& o) { return o->successes == 1; });
  }));
  return outputs;
}

Memory over_sockets(const Case& c, Rank rank, Communicator& communicator) {
  Memory input = make_input(c, rank, 11);
  const std::size_t output_bytes = c.output_count() * size_of(c.type);
  Memory output(output_bytes);
  const OperationOptions options{.algorithm = c.algorithm};
  const LentSpan out{output.data(), c.output_count(), c.type, nullptr};
  const LentConstSpan in(input.data(), c.input_count(), c.type);
  switch (c.collective) {
    case Collective::all_reduce:
      output = input;
      communicator.all_reduce({output.data(), c.count, c.type, nullptr}, c.op, options).wait();
      break;
    case Collective::broadcast:
      if (rank == c.root) output = input;
      communicator.broadcast({output.data(), c.count, c.type, nullptr}, c.root, options).wait();
      break;
    case Collective::all_gather:
      communicator.all_gather(in, out, options).wait();
      break;
    case Collective::reduce_scatter:
      communicator.reduce_scatter(in, out, c.op, options).wait();
      break;
    case Collective::reduce:
      output = input;
      communicator.reduce(out, c.root, c.op, options).wait();
      break;
    case Collective::gather:
      communicator.gather(in, out, c.root, options).wait();
      break;
    case Collective::scatter:
      communicator.scatter(in, out, c.root, options).wait();
      break;
    case Collective::all_to_all:
      communicator.all_to_all(in, out, options).wait();
      break;
    case Collective::barrier:
    case Collective::point_to_point:
      communicator.barrier(options).wait();
      break;
  }
  return output;
}

/// As the ranks of a LocalJob find it: all on one machine.
Topology one_machine(int ranks) {
  return {{Host{}}, std::vector<int>(static_cast<std::size_t>(ranks), 0)};
}

class Conformance : public testing::TestWithParam<int> {
 protected:
  void check(const Case& c) {
    SCOPED_TRACE(c.describe());
    std::vector<Memory> real(static_cast<std::size_t>(c.ranks));
    std::vector<Memory> again = real;
    const std::size_t before = job_.on(0).payload_bytes_sent();
    const auto errors = job_.run([&](Rank rank, Communicator& communicator) {
      real[static_cast<std::size_t>(rank)] = over_sockets(c, rank, communicator);
    });
    const std::size_t sent = job_.on(0).payload_bytes_sent() - before;
    job_.run([&](Rank rank, Communicator& communicator) {
      again[static_cast<std::size_t>(rank)] = over_sockets(c, rank, communicator);
    });
    for (const std::string& error : errors) ASSERT_EQ(error, "");
    const std::vector<Memory> virtually = simulated(c);
    for (Rank r = 0; r < c.ranks; ++r) {
      const auto i = static_cast<std::size_t>(r);
      if (c.ends_at_root() && r != c.root) continue;
      EXPECT_EQ(real[i], virtually[i]) << "sockets and simulation differ, rank " << r;
      EXPECT_EQ(real[i], again[i]) << "two runs differ, rank " << r;
    }
    EXPECT_EQ(sent, scheduled_bytes(c)) << "bytes sent are not those of the schedule";
    if (c.collective == Collective::all_reduce || c.collective == Collective::broadcast) {
      for (const Memory& output : real) EXPECT_EQ(output, real.front()) << "ranks differ";
    }
    if (c.rough) return;
    const std::vector<Memory> inputs = inputs_of(c);
    for (Rank r = 0; r < c.ranks; ++r)
      expect_right(c, r, inputs, real[static_cast<std::size_t>(r)]);
  }

  /// What rank 0's program sends.
  static std::size_t scheduled_bytes(const Case& c) {
    Memory output;
    const Memory input = make_input(c, 0, 11);
    OperationRequest request = make_request(c, 0, input, output, nullptr);
    const auto program = request.program;
    Operation operation({}, std::move(request));
    Memory scratch(operation.scratch_bytes());
    operation.bind_scratch(scratch.data());
    std::size_t bytes = 0;
    for (OpIndex op = 0; op < program->program.ops.size(); ++op) {
      if (program->program.ops[op].kind == OpKind::send) bytes += operation.size(op);
    }
    return bytes;
  }

  LocalJob job_{GetParam()};
};

TEST_P(Conformance, AlgorithmsAndSizes) {
  const int ranks = GetParam();
  for (const Algorithm& algorithm : algorithm_catalogue()) {
    if (algorithm.collective == Collective::point_to_point) continue;
    const bool parts = has_parts(algorithm.collective);
    for (std::size_t count :
         {std::size_t{0}, std::size_t{1}, std::size_t{1021}, std::size_t{1} << 18}) {
      if (algorithm.collective == Collective::barrier && count > 0) continue;
      if (parts && count > 2000) count /= static_cast<std::size_t>(ranks);
      check({.collective = algorithm.collective,
             .algorithm = std::string(algorithm.name),
             .ranks = ranks,
             .count = count,
             .root = static_cast<Rank>(ranks - 1),
             .topology = one_machine(ranks)});
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(Conformance, TypesAndReductions) {
  for (const DataType type : all_data_types()) {
    for (const ReduceOp op : all_reduce_ops()) {
      for (const std::string_view algorithm : algorithm_names(Collective::all_reduce)) {
        const bool rough = type != DataType::uint8 && op != ReduceOp::product;
        for (const bool rounding : {false, rough}) {
          check({.algorithm = std::string(algorithm),
                 .ranks = GetParam(),
                 .count = 257,
                 .type = type,
                 .op = op,
                 .topology = one_machine(GetParam()),
                 .rough = rounding});
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, Conformance, testing::Range(1, 10));

}  // namespace
}  // namespace gradwire::test
