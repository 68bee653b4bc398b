#pragma once

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>

#include "gradwire/base/types.h"

namespace gradwire::report {

/// Progress of a training run.
struct TrainingProgress {
  int epoch = 1;  ///< Current epoch, from 1 to `epochs`.
  int epochs = 1;
  std::int64_t step = 0;  ///< Current step in this epoch, from 1 to `steps`.
  std::int64_t steps = 0;
  double loss = 0;
  double images_per_second = 0;            ///< Samples, over all ranks.
  std::int64_t characters_per_sample = 0;  ///< TrainingSummary::characters_per_sample.
  std::string samples = "images";          ///< TrainingSummary::samples.
  double communication_share = 0;  ///< Share of time spent waiting for communication, 0 .. 1.
  Duration left{};                 ///< Estimated.
};

/// "epoch 3/8  step 120/468  loss 0.3124  3412 images/s  communication 12 %  1:05 left"
std::string progress_line(const TrainingProgress& progress);

/// "1:05", "1:00:05".
std::string format_clock(Duration duration);

/// Prints progress: on a terminal one line that is overwritten, otherwise (file, log) a line at
/// intervals. Reads no clock: the time is an argument.
class ProgressPrinter {
 public:
  ProgressPrinter(std::ostream& out, bool terminal);

  void update(const TrainingProgress& progress, Time now);

  /// Prints a separate line.
  void print(const std::string& line);

  /// Ends the live line, so that other output can follow.
  void end_line();

 private:
  std::ostream& out_;
  bool terminal_;
  std::optional<Time> last_;
  bool line_open_ = false;
};

}  // namespace gradwire::report
