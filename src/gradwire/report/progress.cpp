#include "gradwire/report/progress.h"

#include <chrono>
#include <cmath>

#include <fmt/format.h>

#include "gradwire/report/training_summary.h"

namespace gradwire::report {
namespace {

constexpr Duration kLiveInterval = std::chrono::milliseconds(100);
constexpr Duration kLogInterval = std::chrono::seconds(5);

// Carriage return, then erase the rest of the previous line.
constexpr const char* kRestartLine = "\r\x1b[K";

}  // namespace

std::string format_clock(Duration duration) {
  const auto seconds = std::chrono::round<std::chrono::seconds>(duration).count();
  if (seconds < 3600) return fmt::format("{}:{:02}", seconds / 60, seconds % 60);
  return fmt::format("{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
}

std::string progress_line(const TrainingProgress& p) {
  return fmt::format("epoch {}/{}  step {}/{}  loss {:.4f}  {}  communication {:.0f} %  {} left",
                     p.epoch, p.epochs, p.step, p.steps, p.loss,
                     throughput_text(p.images_per_second, p.samples, p.characters_per_sample),
                     100 * p.communication_share, format_clock(p.left));
}

ProgressPrinter::ProgressPrinter(std::ostream& out, bool terminal)
    : out_(out), terminal_(terminal) {}

void ProgressPrinter::update(const TrainingProgress& progress, Time now) {
  const bool last_step = progress.epoch == progress.epochs && progress.step == progress.steps;
  const auto interval = terminal_ ? kLiveInterval : kLogInterval;
  if (last_ && now - *last_ < interval && !last_step) return;
  last_ = now;
  if (terminal_) {
    out_ << kRestartLine << progress_line(progress) << std::flush;
    line_open_ = true;
  } else {
    out_ << progress_line(progress) << std::endl;
  }
}

void ProgressPrinter::print(const std::string& line) {
  end_line();
  out_ << line << std::endl;
}

void ProgressPrinter::end_line() {
  if (line_open_) out_ << std::endl;
  line_open_ = false;
}

}  // namespace gradwire::report
