#include "tests/support/run_case.h"

namespace gradwire::test {

Memory run_case(const Case& c, const Memory& input, Rank rank, Communicator& communicator,
                const OperationOptions& options) {
  Memory output(c.output_count() * size_of(c.type));
  const LentSpan out{output.data(), c.output_count(), c.type, nullptr};
  const LentConstSpan in(input.data(), c.input_count(), c.type);
  switch (c.collective) {
    case schedule::Collective::all_reduce:
      output = input;
      communicator.all_reduce({output.data(), c.count, c.type, nullptr}, c.op, options).wait();
      break;
    case schedule::Collective::broadcast:
      if (rank == c.root) output = input;
      communicator.broadcast({output.data(), c.count, c.type, nullptr}, c.root, options).wait();
      break;
    case schedule::Collective::all_gather:
      communicator.all_gather(in, out, options).wait();
      break;
    case schedule::Collective::reduce_scatter:
      communicator.reduce_scatter(in, out, c.op, options).wait();
      break;
    case schedule::Collective::reduce:
      output = input;
      communicator.reduce({output.data(), c.count, c.type, nullptr}, c.root, c.op, options).wait();
      break;
    case schedule::Collective::gather:
      communicator.gather(in, out, c.root, options).wait();
      break;
    case schedule::Collective::scatter:
      communicator.scatter(in, out, c.root, options).wait();
      break;
    case schedule::Collective::all_to_all:
      communicator.all_to_all(in, out, options).wait();
      break;
    case schedule::Collective::barrier:
    case schedule::Collective::point_to_point:
      communicator.barrier(options).wait();
      break;
  }
  return output;
}

}  // namespace gradwire::test
