#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <poll.h>

#include "gradwire/base/clock.h"
#include "gradwire/cli/launch/launch.h"
#include "gradwire/cli/launch/rank_output.h"
#include "gradwire/cli/launch/rank_process.h"
#include "gradwire/cli/launch/signal_source.h"
#include "gradwire/cli/launch/watcher.h"

namespace gradwire::cli {

/// Runs a planned job to its end. One thread polls signals, ends of processes and their output, and
/// decides which processes to stop. The process must be a subreaper (prctl(2)), so that processes
/// left behind by ranks become its children.
class Supervisor {
 public:
  Supervisor(const LaunchOptions& options, JobPlan plan, const Clock& clock);

  /// Runs the job; returns the result of launch().
  int run();

 private:
  /// A job goes through these phases in order.
  enum class Phase : std::uint8_t {
    running,
    settling,  ///< A rank failed; the others may report until the deadline.
    stopping,  ///< Signalled to end; waits until the deadline.
    killing,   ///< SIGKILL sent; remote shells may report until the deadline.
  };

  void start_ranks();
  void deliver_output();
  void poll_once();
  int poll_timeout() const;
  void on_signals();
  void on_stop_signal(int signal);
  void collect_ended();
  void note_failures(const std::vector<std::size_t>& ended);
  bool is_optional(std::size_t rank) const;
  bool is_missed_by_none(std::size_t rank) const;
  void settle();
  bool all_ended() const;
  std::vector<pid_t> left_behind() const;
  bool is_finished();

  void begin_stop(int signal);
  void begin_kill();
  void begin_end();
  bool is_saving() const;
  void kill_remaining();
  void on_deadline();
  bool shells_missing() const;
  void check_shells();
  void abort_slow_shells();

  void print_message(const std::string& sentence);
  void report_late_ranks();
  void report_end();
  bool died_of_lost_output(const RankProcess& rank) const;
  int status() const;
  std::string where(const RankProcess& rank) const;
  std::size_t first_cause() const;
  std::string reason_of(const RankProcess& rank) const;
  bool was_stopped(const RankProcess& rank) const;
  std::string why_never_ran(const RankProcess& rank) const;
  OutputSink& error_sink() { return one_sink_ ? out_ : err_; }

  const LaunchOptions& options_;
  const Clock& clock_;
  SignalSource signals_;
  Watcher watcher_;
  OutputSink out_;
  OutputSink err_;
  bool one_sink_;  ///< stdout and stderr are one file: lines must not interleave.
  std::deque<RankProcess> ranks_;
  Phase phase_ = Phase::running;
  std::optional<Time> deadline_;
  Time started_ = {};
  Time failed_ = {};  ///< When the ranks began to settle.
  Duration shell_wait_ = {};
  bool shells_awaited_ = false;     ///< Until all shells have started their ranks or were given up.
  std::optional<int> stop_signal_;  ///< First stop signal from the user.
  std::set<std::size_t> stopped_;   ///< Ranks that ran when the launcher began to stop them.
  std::set<int> passed_on_;         ///< User signals that the ranks were sent.
  int interrupts_ = 0;
  bool wait_reported_ = false;       ///< The user was told that ranks save a checkpoint.
  bool remaining_signaled_ = false;  ///< SIGTERM was sent to processes that ranks left behind.
  bool output_abandoned_ = false;
  std::optional<std::size_t> first_failure_;
  std::set<std::size_t> optional_then_;  ///< Ranks that were optional when they failed.
  std::set<std::size_t> missed_;         ///< Ranks that failed, and without which the job goes on.
};

}  // namespace gradwire::cli
