#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gradwire/base/lent_span.h"
#include "gradwire/servers/order_log.h"
#include "gradwire/servers/server.h"
#include "gradwire/servers/worker_steps.h"

namespace gradwire::servers {

/// Computes the gradients of all workers.
class ReplayedWorkers {
 public:
  virtual ~ReplayedWorkers() = default;

  /// A whole unit's values, which the next compute() reads.
  virtual LentSpan values(std::size_t unit) = 0;
  /// Computes the gradient of the worker's next step. Returns the checksum of the random state that
  /// it began with.
  virtual std::uint32_t compute(const WorkerStep& step) = 0;
  /// A whole unit's gradient, of the last compute().
  virtual LentSpan gradient(std::size_t unit) = 0;
};

/// Repeats a run of servers and workers on one thread: each server applies the gradients in the
/// order of the log, computed with the versions of the values that the workers had. Memory: the
/// versions that some step still reads, and the gradients that some server has not applied yet.
class OrderReplay {
 public:
  /// `log`, `workers` and `servers`, each with its parts of the units as they were when the run
  /// began, must outlive this. Throws Exception(invalid_argument) if they do not fit the log.
  OrderReplay(const OrderLog& log, std::vector<ServedShards*> servers, ReplayedWorkers& workers);

  /// Runs to the end of the log. Calls `on_step` after each compute(). Throws
  /// Exception(invalid_argument) if the log contradicts itself.
  void run(const std::function<void(const WorkerStep&)>& on_step);

  const WorkerSteps& steps() const { return steps_; }
  /// The first difference from the run; "" if all has the same bits.
  const std::string& difference() const { return difference_; }

 private:
  using Values = std::vector<std::byte>;
  using OnStep = std::function<void(const WorkerStep&)>;
  /// The gradients of a step, by unit.
  struct Computed {
    std::vector<Values> units;
    std::size_t left = 0;  ///< Parts that no server has applied or dropped yet.
  };
  /// How far a server is.
  struct Served {
    ServedShards* shards = nullptr;
    std::size_t next = 0;                     ///< Record.
    std::vector<std::int64_t> versions;       ///< By unit.
    std::vector<std::size_t> pushed;          ///< By unit and worker: gradients so far.
    std::vector<std::vector<LentSpan>> open;  ///< By unit: gradients of the step that is added up.
  };
  /// The versions of a server's part of a unit that some step has yet to read.
  struct History {
    std::map<std::int64_t, std::size_t> readers;
    std::map<std::int64_t, Values> values;
  };

  std::size_t part_of_unit(std::size_t server, std::size_t unit) const {
    return server * steps_.units + unit;
  }
  void check_shapes() const;
  void count_readers();
  void keep_values(std::size_t server, std::size_t unit);
  bool advance(std::size_t server, const OnStep& on_step);
  bool take_gradient(std::size_t server, const OrderRecord& record, const OnStep& on_step);
  bool is_computable(const WorkerStep& step) const;
  void compute(const WorkerStep& step, const OnStep& on_step);
  void read(std::size_t server, std::size_t unit, std::int64_t version);
  LentSpan take_part(const WorkerStep& step, std::size_t server, std::size_t unit);
  void apply(std::size_t server, const OrderRecord& record, LentSpan gradient);
  void check_values(std::size_t server, const OrderRecord& record);
  void note(const std::string& difference);

  const OrderLog& log_;
  ReplayedWorkers& workers_;
  WorkerSteps steps_;
  std::vector<Served> servers_;
  std::vector<History> history_;  ///< By part_of_unit().
  /// By worker: the steps that some server has yet to take, by number.
  std::vector<std::map<std::int64_t, std::shared_ptr<Computed>>> computed_;
  std::vector<std::int64_t> begun_;  ///< By worker: steps.
  std::string difference_;
};

}  // namespace gradwire::servers
