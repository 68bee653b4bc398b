#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "gradwire/base/types.h"
#include "gradwire/servers/order_log.h"
#include "gradwire/servers/sample_dealer.h"

namespace gradwire::servers {

/// A server's part of a unit of a worker's step.
struct StepPart {
  static constexpr std::int64_t kUnknown = -1;
  const OrderRecord* gradient = nullptr;  ///< Null: the worker was lost before it pushed this part.
  std::int64_t base = kUnknown;           ///< Version of the values that the worker had.
};

/// A worker's step, put together of what all servers have recorded of it.
struct WorkerStep {
  Rank worker = 0;
  std::int64_t number = 0;  ///< Counted from 0 on each worker.
  std::uint32_t random = 0;
  std::uint32_t count = 0;  ///< Number of batches.
  std::vector<Deal> batches;
  std::vector<StepPart> parts;           ///< By server and unit: server * units + unit.
  std::int64_t staleness = 0;            ///< The largest of its applied parts.
  std::int64_t staleness_sum = 0;        ///< Over them.
  std::size_t applied = 0, dropped = 0;  ///< Parts.
  double factor = 1;                     ///< On the learning rate, of the last applied part.
};

/// The steps of all workers of a run.
struct WorkerSteps {
  std::size_t units = 0;
  std::vector<std::vector<WorkerStep>> by_worker;
};

/// Returns the steps of a log, to whose records they refer. Throws Exception(invalid_argument) if
/// its records cannot be of one run.
WorkerSteps steps_of(const OrderLog& log);

}  // namespace gradwire::servers
