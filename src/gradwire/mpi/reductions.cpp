#include "gradwire/mpi/reductions.h"

#include <fmt/format.h>

#include "gradwire/base/error.h"
#include "gradwire/engine/operations/reduction.h"

namespace gradwire::mpi {
namespace {

template <DataType type, ReduceOp op>
void combine_elements(void* in, void* inout, int* count, void* /*type*/) {
  auto* const output = static_cast<std::byte*>(inout);
  engine::combine(output, static_cast<const std::byte*>(in), output,
                  static_cast<std::size_t>(*count), type, op);
}

gradwire_mpi_op named(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::mean:
      return GRADWIRE_MPI_SUM;
    case ReduceOp::min:
      return GRADWIRE_MPI_MIN;
    case ReduceOp::max:
      return GRADWIRE_MPI_MAX;
    case ReduceOp::product:
      return GRADWIRE_MPI_PRODUCT;
    case ReduceOp::bit_and:
      return GRADWIRE_MPI_BIT_AND;
    case ReduceOp::bit_or:
      return GRADWIRE_MPI_BIT_OR;
    case ReduceOp::bit_xor:
      break;
  }
  return GRADWIRE_MPI_BIT_XOR;
}

}  // namespace

Reductions::Reductions(const gradwire_mpi& mpi) : mpi_(mpi) {
  using enum DataType;
  using enum ReduceOp;
  const auto add = [this](DataType type, ReduceOp op, gradwire_mpi_combine function) {
    if (mpi_.make_op(function, &made_[{type, op}]) == 0) return;
    throw Exception(ErrorKind::system, fmt::format("{}: MPI_Op_create failed", mpi_.name));
  };
  add(bfloat16, sum, &combine_elements<bfloat16, sum>);
  add(bfloat16, min, &combine_elements<bfloat16, min>);
  add(bfloat16, max, &combine_elements<bfloat16, max>);
  add(bfloat16, product, &combine_elements<bfloat16, product>);
  add(float16, sum, &combine_elements<float16, sum>);
  add(float16, min, &combine_elements<float16, min>);
  add(float16, max, &combine_elements<float16, max>);
  add(float16, product, &combine_elements<float16, product>);
  add(float32, min, &combine_elements<float32, min>);
  add(float32, max, &combine_elements<float32, max>);
  add(float64, min, &combine_elements<float64, min>);
  add(float64, max, &combine_elements<float64, max>);
}

gradwire_mpi_handle Reductions::handle(DataType type, ReduceOp op) const {
  if (op == ReduceOp::mean) op = ReduceOp::sum;
  const auto own = made_.find({type, op});
  return own != made_.end() ? own->second : mpi_.named_op(named(op));
}

}  // namespace gradwire::mpi
