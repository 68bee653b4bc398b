#pragma once

#include <optional>
#include <string>
#include <vector>

#include <poll.h>

#include "gradwire/bootstrap/failure_report.h"
#include "gradwire/cli/launch/launch.h"
#include "gradwire/cli/launch/process.h"
#include "gradwire/cli/launch/rank_output.h"

namespace gradwire::cli {

/// Exit status of shells for a program that cannot be started.
inline constexpr int kCannotStart = 127;

/// How a process ended.
struct ExitStatus {
  int status = 0;  ///< 0 to 255; 128 + signal if killed by a signal, as in shells.
  int signal = 0;  ///< 0 if not known to be killed by a signal.

  /// Converts a status of waitpid(2).
  static ExitStatus from_wait(int wait_status);
  bool failed() const { return status != 0; }
};

/// Returns text such as "failed with exit status 3", "was killed by signal 9 (SIGKILL)".
std::string describe(const ExitStatus& exit_status);

/// One rank: its process on this host, or the remote shell that starts and supervises it.
class RankProcess {
 public:
  /// The rank's lines are appended to `out` and `err`, which must outlive this object.
  RankProcess(RankPlan plan, const std::string& run, OutputSink& out, OutputSink& err);

  /// Fails with system if the program (or the remote shell) cannot be started.
  Status start(const LaunchOptions& options);

  /// Signals the rank's whole process group. A remote shell that has not started its rank yet is
  /// killed instead (SIGUSR1 and SIGUSR2 are then ignored).
  void send_signal(int signal);

  /// Kills the rank, or lets the shell of another host kill it when it no longer saves a
  /// checkpoint.
  void end();
  /// Returns true if the rank is known to be saving a checkpoint: on another host, since end().
  bool is_saving() const;

  /// Asks the shell of another host for optional_ranks().
  void ask_for_notes();
  /// Returns true if the shell has not answered yet.
  bool awaits_notes() const { return running() && awaits_notes_; }
  /// The ranks that this one has said to be optional, as far as known.
  bootstrap::OptionalRanks optional_ranks() const;

  /// Kills the process, or the remote shell of a host that no longer answers.
  void abandon();

  /// Kills a remote shell that has not started its rank in time; exit_status() becomes
  /// kCannotStart.
  void abort_start();

  void append_poll_items(std::vector<pollfd>& items) const;
  /// Reads available output and writes pending input; call it after every poll.
  void transfer();

  /// Called when waitpid() has reported the end; its remaining output can still be read.
  void set_ended(const ExitStatus& exit_status);

  /// Called when all processes of the job have ended: reads the remaining output and passes on
  /// incomplete lines. Returns false if the sinks are full; call it again then.
  bool finish_output();

  const RankPlan& plan() const { return plan_; }
  pid_t pid() const { return process_.pid; }
  bool running() const { return process_.pid > 0 && !exit_status_; }
  const std::optional<ExitStatus>& exit_status() const { return exit_status_; }
  /// Why the rank failed, as far as it knows. Complete when finish_output() has returned true.
  const std::optional<bootstrap::FailureReport>& report() const { return report_; }
  /// Returns true if the rank is remote and its script has not printed the ready line.
  bool never_ran() const { return plan_.remote && remote_process_.empty(); }
  /// Returns true if the remote shell exited with 0 without running the script; exit_status() is
  /// kCannotStart.
  bool ran_nothing() const { return ran_nothing_; }
  /// Returns true if the remote shell was killed by abort_start().
  bool start_aborted() const { return start_aborted_; }

 private:
  /// stdout or stderr of the rank.
  struct Stream {
    UniqueFd fd;
    LinePrefixer lines;
    OutputSink& sink;
  };

  void close_if_unread(Stream& stream);
  void read_from(Stream& stream);
  void end_stream(Stream& stream);
  bool finish(Stream& stream);
  void take_in(Stream& stream, std::string_view text);
  void check_started();
  void find_ready_line(Stream& stream, std::string_view text);
  void write_input();
  std::string without_report(std::string_view text);
  std::string report_contents() const;

  RankPlan plan_;
  std::string run_;
  Process process_;
  Stream out_, err_;
  std::string input_;           ///< Pending input of the remote script.
  std::string greeting_;        ///< Output of the remote host before the ready line.
  std::string remote_process_;  ///< Process id of the rank on its host; empty until it runs.
  std::optional<ExitStatus> exit_status_;
  UniqueFd report_file_;               ///< Report file of a rank on this host.
  std::string held_stderr_;            ///< May be the beginning of a remote rank's report.
  bootstrap::OptionalRanks optional_;  ///< The shell of another host has said so.
  bool awaits_notes_ = false;
  bool saves_ = false;  ///< The shell of another host has said so.
  std::optional<bootstrap::FailureReport> report_;
  bool ran_nothing_ = false;
  bool start_aborted_ = false;
  std::optional<int> ended_by_;  ///< Signal that ended the remote shell before its rank ran.
};

}  // namespace gradwire::cli
