#pragma once

#include <optional>
#include <string>
#include <vector>

#include <poll.h>

#include "gradwire/cli/launch/line_prefixer.h"
#include "gradwire/cli/launch/output_sink.h"
#include "gradwire/cli/launch/plan.h"
#include "gradwire/cli/launch/process.h"

namespace gradwire {

/// Exit status of shells for a program that cannot be started.
inline constexpr int kCannotStart = 127;

/// How a process ended.
struct Ending {
  int status = 0;  ///< 0 .. 255; 128 + signal if by a signal, as shells have it.
  int signal = 0;  ///< 0 if it was not known to be by a signal.

  /// From what waitpid(2) gives.
  static Ending from_wait(int wait_status);
  bool failed() const { return status != 0; }
};

/// "exited with status 3", "was killed by signal 9 (SIGKILL)".
std::string describe(const Ending& ending);

/// One rank: the process itself on this host, or the remote shell that looks after it.
class RankProcess {
 public:
  /// `out`, `err`: where its lines go. They must outlive this.
  RankProcess(RankPlan plan, const std::string& run, OutputSink& out, OutputSink& err);

  /// Error: system, if the program (or the remote shell) cannot be started.
  Status start(const LaunchOptions& options);

  /// To the rank's whole process group. One that is still on its way to start on another host is
  /// ended there and then.
  void send_signal(int signal);

  /// Ends the remote shell, when the other host no longer answers.
  void abandon();

  /// The same, as it has not started the rank in time; its ending is kCannotStart.
  void give_up_starting();

  void append_poll_items(std::vector<pollfd>& items) const;
  /// Takes in what has come and sends what waits; call it after every poll.
  void transfer();

  /// waitpid() has reported its end, and what it wrote can be read.
  void set_ended(const Ending& ending);

  /// For when all processes of the job have ended: takes in the last output and passes unfinished
  /// lines on. False if the sinks are too full for now.
  bool finish_output();

  const RankPlan& plan() const { return plan_; }
  pid_t pid() const { return process_.pid; }
  bool running() const { return process_.pid > 0 && !ending_; }
  const std::optional<Ending>& ending() const { return ending_; }
  /// On another host, and the script there has not said that the rank runs.
  bool never_ran() const { return plan_.remote && remote_process_.empty(); }
  /// The remote shell ended well without running the script, which ending() has as kCannotStart.
  bool ran_nothing() const { return ran_nothing_; }
  /// The remote shell was given up before it had started the rank.
  bool gave_up() const { return gave_up_; }

 private:
  /// One of its two streams of output.
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
  void look_whether_it_ran();
  void look_for_ready_line(Stream& stream, std::string_view text);
  void write_input();

  RankPlan plan_;
  std::string run_;
  Process process_;
  Stream out_, err_;
  std::string input_;           ///< For the remote script, not yet written.
  std::string greeting_;        ///< What a remote host wrote before the ready line.
  std::string remote_process_;  ///< The rank's process id there, once it runs.
  std::optional<Ending> ending_;
  bool ran_nothing_ = false;
  bool gave_up_ = false;
  std::optional<int> ended_by_;  ///< The signal for which it was ended before the rank ran.
};

}  // namespace gradwire
