#pragma once

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>

#include "gradwire/base/types.h"

namespace gradwire {

/// How far a training run is.
struct TrainingProgress {
  int epoch = 1;  ///< Of `epochs`, from 1.
  int epochs = 1;
  std::int64_t step = 0;  ///< Of `steps` in this epoch, from 1.
  std::int64_t steps = 0;
  double loss = 0;
  double images_per_second = 0;    ///< Over all ranks.
  double communication_share = 0;  ///< Part of the time spent waiting for communication, 0 .. 1.
  Duration left{};                 ///< Estimated.
};

/// "epoch 3/8  step 120/468  loss 0.3124  3412 images/s  communication 12 %  1:05 left"
std::string progress_line(const TrainingProgress& progress);

/// "1:05", "1:00:05".
std::string format_clock(Duration duration);

/// Shows progress: on a terminal one line that keeps changing, elsewhere (a file, a log) a line now
/// and then. Reads no clock: the time is an argument.
class ProgressPrinter {
 public:
  ProgressPrinter(std::ostream& out, bool terminal);

  void update(const TrainingProgress& progress, Time now);

  /// A line of its own.
  void say(const std::string& line);

  /// Lets other output follow: ends the live line.
  void end_line();

 private:
  std::ostream& out_;
  bool terminal_;
  std::optional<Time> last_;
  bool line_open_ = false;
};

}  // namespace gradwire
