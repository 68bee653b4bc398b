#pragma once

#include <map>
#include <utility>

#include "gradwire/base/element.h"
#include "gradwire/mpi/plugin.h"

namespace gradwire::mpi {

/// MPI's operations for reductions. They are its own, but for bfloat16 and float16, and for the
/// minimum and maximum of floats, which are NaN if an operand is (engine/operations/reduction.h).
class Reductions {
 public:
  /// Must be called while no other thread calls MPI. Throws Exception(system).
  explicit Reductions(const gradwire_mpi& mpi);

  /// `mean` is the operation that adds. Thread-safe.
  gradwire_mpi_handle handle(DataType type, ReduceOp op) const;

 private:
  const gradwire_mpi& mpi_;
  std::map<std::pair<DataType, ReduceOp>, gradwire_mpi_handle> made_;
};

}  // namespace gradwire::mpi
