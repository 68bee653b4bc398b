#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gradwire/base/error.h"
#include "gradwire/base/work.h"
#include "gradwire/exchange/codec_worker.h"
#include "gradwire/exchange/unit_tracker.h"

namespace gradwire::exchange {

/// Units that pass through stages. Each stage is a task on a thread of its own, which ends by
/// posting an operation, whose completion queues the next stage. The task of the last stage calls
/// piece_done(). A unit may be cut into pieces, which pass through the stages independently.
class UnitStages {
 public:
  /// `abort`: called with the message of a task's exception. That fails all units. `where`: the
  /// beginning of all errors.
  UnitStages(std::size_t units, std::function<void(const std::string&)> abort,
             std::string where = "");
  ~UnitStages();

  /// Starts the unit, which is done after `pieces` calls of piece_done(). `finish` is called by the
  /// thread that waits for the returned operation. Throws Exception: invalid_argument if the unit
  /// is in flight, or the error of an earlier one.
  Work begin(std::size_t unit, std::size_t pieces, int priority, std::function<void()> finish = {});
  /// Queues a task of the unit, which is skipped after a failure. Higher priorities are first, then
  /// later stages.
  void add(std::size_t unit, int stage, std::function<void()> task);
  /// Queues the task when `work` is complete. If that fails, all units do.
  void add_after(const Work& work, std::size_t unit, int stage, std::function<void()> task);
  /// Queues the task when `work` has ended, with its error, if it failed.
  void add_when_ended(const Work& work, std::size_t unit, int stage,
                      std::function<void(const std::shared_ptr<const Error>&)> task);
  void piece_done(std::size_t unit) { tracker_->piece_done(unit); }

  /// Waits for the running task, and drops the others. Call it before anything ends that tasks use.
  void stop() { worker_.reset(); }

 private:
  class StagedWork;

  void run(const std::function<void()>& task);

  std::function<void(const std::string&)> abort_;
  std::string where_;
  std::vector<int> priorities_;           ///< By unit.
  std::shared_ptr<UnitTracker> tracker_;  ///< Shared with operations, which may end later.
  std::unique_ptr<CodecWorker> worker_;
  std::shared_ptr<TaskQueue> queue_;  ///< The worker's; tasks add to it while it shuts down.
};

}  // namespace gradwire::exchange
