#pragma once

#include <filesystem>
#include <string>

#include "gradwire/base/clock.h"
#include "gradwire/host/group.h"
#include "gradwire/report/progress.h"
#include "gradwire/train/servers/served_module.h"

namespace gradwire::recipe {

/// Throws Exception(invalid_argument) unless all ranks compute with equally many threads, as
/// the process of a replay does for all of them. Collective.
void require_equal_threads(c10d::ProcessGroup& group);

/// Writes the order of a run so far (servers/order_log.h). Call on one worker, when no worker has a
/// gradient in flight. `configuration`: as JSON.
void write_order(const std::filesystem::path& file, const std::string& configuration,
                 ServedModule& served);

struct ReplayContext {
  std::filesystem::path order;   ///< The file of write_order().
  std::filesystem::path output;  ///< Folder for the model, and for the table of all steps.
  std::string data;              ///< Folder of the data set; empty: the run's.
  const Clock* clock = nullptr;
  report::ProgressPrinter* progress = nullptr;
};

struct ReplayResult {
  std::string text;        ///< For the terminal: what each worker did, and the test accuracy.
  std::string difference;  ///< The first one from the run; empty: all has the same bits.
};

/// Repeats a run with parameter servers in this process, and writes its model, and "replay.csv"
/// with a row for each step of a worker, in an order in which they can be computed. Sets the number
/// of torch threads to that of the run's ranks. Throws Exception(invalid_argument) for a file that
/// is no order of a run.
ReplayResult replay(const ReplayContext& context);

}  // namespace gradwire::recipe
