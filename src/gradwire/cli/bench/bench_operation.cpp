#include "gradwire/cli/bench/bench_operation.h"

#include <algorithm>
#include <cstdint>

#include <fmt/format.h>

#include "gradwire/base/error.h"
#include "gradwire/base/units.h"

namespace gradwire {
namespace {

/// Allocates a buffer of `count` elements of `type`. Throws Exception(system) if there is no
/// memory.
std::vector<std::byte> buffer(std::size_t count, DataType type, const BenchCase& what,
                              const Communicator& communicator) {
  try {
    return std::vector<std::byte>(count * size_of(type));
  } catch (const std::exception&) {  // bad_alloc, or length_error beyond max_size().
    throw Exception(ErrorKind::system,
                    fmt::format("rank {} cannot allocate a buffer of {} ({} of {}): use smaller "
                                "--sizes, or run fewer ranks per host",
                                communicator.rank(), format_bytes(count * size_of(type)),
                                name_of(what.collective), format_bytes(what.bytes)));
  }
}

}  // namespace

BenchOperation::BenchOperation(Communicator& communicator, const BenchCase& what)
    : communicator_(communicator),
      what_(what),
      pattern_(what, communicator.rank(), communicator.size()),
      input_(buffer(pattern_.input_count(), what.type, what, communicator)),
      output_(buffer(pattern_.output_count(), what.type, what, communicator)) {}

void BenchOperation::prepare() {
  if (is_rooted(what_.collective)) communicator_.barrier().wait();
}

void BenchOperation::run() {
  const OperationOptions options{.algorithm = what_.algorithm, .segments = what_.segments};
  const LentSpan out{output_.data(), pattern_.output_count(), what_.type, nullptr};
  const LentConstSpan in(input_.data(), pattern_.input_count(), what_.type);
  switch (what_.collective) {
    case Collective::all_reduce:
      return communicator_.all_reduce(out, what_.op, options).wait();
    case Collective::broadcast:
      return communicator_.broadcast(out, 0, options).wait();
    case Collective::all_gather:
      return communicator_.all_gather(in, out, options).wait();
    case Collective::reduce_scatter:
      return communicator_.reduce_scatter(in, out, what_.op, options).wait();
    case Collective::reduce:
      return communicator_.reduce(out, 0, what_.op, options).wait();
    case Collective::gather:
      return communicator_.gather(in, out, 0, options).wait();
    case Collective::scatter:
      return communicator_.scatter(in, out, 0, options).wait();
    case Collective::all_to_all:
      return communicator_.all_to_all(in, out, options).wait();
    case Collective::barrier:
      return communicator_.barrier(options).wait();
    case Collective::point_to_point:
      return exchange_with_neighbors(in, out);
  }
}

void BenchOperation::exchange_with_neighbors(const LentConstSpan& in, const LentSpan& out) {
  const int ranks = communicator_.size();
  if (ranks == 1) return;
  const Work sent = communicator_.send(in, (communicator_.rank() + 1) % ranks);
  communicator_.recv(out, (communicator_.rank() + ranks - 1) % ranks).wait();
  sent.wait();
}

std::size_t BenchOperation::count_wrong() {
  pattern_.fill(input_, output_);
  run();
  auto wrong = static_cast<std::int64_t>(pattern_.count_wrong(output_));
  communicator_.all_reduce({&wrong, 1, DataType::int64, nullptr}, ReduceOp::sum).wait();
  return static_cast<std::size_t>(wrong);
}

void BenchOperation::clear() {
  std::ranges::fill(input_, std::byte{0});
  std::ranges::fill(output_, std::byte{0});
}

}  // namespace gradwire
