#include "gradwire/cli/launch/supervisor.h"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gradwire/base/error.h"
#include "gradwire/cli/launch/process.h"
#include "gradwire/cli/launch/remote_script.h"

namespace gradwire::cli {
namespace {

/// Maximum time after SIGKILL for another host to confirm it.
constexpr Duration kConfirmation = std::chrono::seconds(2);

bool same_file(int a, int b) {
  struct stat of_a {};
  struct stat of_b {};
  return ::fstat(a, &of_a) == 0 && ::fstat(b, &of_b) == 0 && of_a.st_dev == of_b.st_dev &&
         of_a.st_ino == of_b.st_ino;
}

/// If a rank fails while a shell has not started its rank for this long, the shell is taken for the
/// cause.
constexpr Duration kSlowShell = std::chrono::seconds(10);

/// After the grace period the launcher checks this often whether ranks still save a checkpoint.
constexpr Duration kSavingCheck = std::chrono::milliseconds(100);

/// Time for the other ranks to report a failure before they are stopped: a rank that loses its peer
/// prints which one.
constexpr Duration kSettlingTime = std::chrono::milliseconds(300);

/// Time for the shells of other hosts to say which ranks are optional, and between two looks.
constexpr Duration kNotesTime = std::chrono::seconds(3);
constexpr Duration kNotesCheck = std::chrono::milliseconds(50);

}  // namespace

Supervisor::Supervisor(const LaunchOptions& options, JobPlan plan, const Clock& clock)
    : options_(options),
      clock_(clock),
      signals_({SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD}),
      watcher_(plan.run),
      out_(STDOUT_FILENO),
      err_(STDERR_FILENO),
      one_sink_(same_file(STDOUT_FILENO, STDERR_FILENO)) {
  for (RankPlan& rank : plan.ranks) {
    ranks_.emplace_back(std::move(rank), plan.run, out_, error_sink());
  }
}

int Supervisor::run() {
  start_ranks();
  while (!is_finished()) poll_once();
  if (phase_ == Phase::settling) settle();
  watcher_.release();
  // Reap processes that ended since the last poll, lest they stay zombies of the launcher's parent.
  while (::waitpid(-1, nullptr, WNOHANG) > 0) continue;
  deliver_output();
  report_end();
  deliver_output();
  return status();
}

int Supervisor::status() const {
  const bool lost = out_.error() != 0 || err_.error() != 0;
  if (!first_failure_) return lost ? 1 : 0;
  const RankProcess& first = ranks_[first_cause()];
  if (!first.exit_status()->failed()) return ranks_[*first_failure_].exit_status()->status;
  return died_of_lost_output(first) ? 1 : first.exit_status()->status;
}

/// The rank that made the job fail: the first that ended with a failure, unless it only lost
/// another one. A rank knows its own failure; what others report about it is next.
std::size_t Supervisor::first_cause() const {
  const std::size_t first = *first_failure_;
  if (ranks_[first].start_aborted()) return first;
  std::vector<std::size_t> votes(ranks_.size());
  for (const RankProcess& rank : ranks_) {
    if (!rank.report()) continue;
    const auto cause = static_cast<std::size_t>(rank.report()->cause);
    if (cause >= votes.size() || is_optional(cause)) continue;
    const bool knows = rank.plan().place.rank == rank.report()->cause;
    votes[cause] += knows ? ranks_.size() : 1;
  }
  const auto cause = static_cast<std::size_t>(std::ranges::max_element(votes) - votes.begin());
  // The launcher ended it, not the program: its host or a link may have failed. But a program that
  // has failed may also be too slow to end by itself.
  const int status = ranks_[cause].exit_status()->status;
  const bool was_ended = votes[cause] < ranks_.size() && stopped_.contains(cause) &&
                         (status == 128 + SIGTERM || status == 128 + SIGKILL);
  return votes[cause] == 0 || was_ended ? first : cause;
}

/// Returns the reason in parentheses; "" if no rank has reported one.
std::string Supervisor::reason_of(const RankProcess& rank) const {
  const auto is_about = [&](const RankProcess& other) {
    return other.report() && other.report()->cause == rank.plan().place.rank;
  };
  if (rank.report()) return fmt::format(" ({})", rank.report()->text);
  const auto other = std::ranges::find_if(ranks_, is_about);
  return other == ranks_.end() ? "" : fmt::format(" ({})", other->report()->text);
}

bool Supervisor::died_of_lost_output(const RankProcess& rank) const {
  const bool lost = out_.error() != 0 || err_.error() != 0;
  return lost && rank.exit_status()->status == 128 + SIGPIPE;
}

void Supervisor::start_ranks() {
  started_ = clock_.now();
  shells_awaited_ = true;
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    const Status started = ranks_[i].start(options_);
    if (started) continue;
    print_message(started.error().message);
    for (std::size_t rest = i; rest < ranks_.size(); ++rest) {
      ranks_[rest].set_ended(ExitStatus{kCannotStart, 0});
    }
    first_failure_ = i;
    begin_stop(SIGTERM);
    return;
  }
}

void Supervisor::deliver_output() {
  for (;;) {
    bool finished = true;
    for (RankProcess& rank : ranks_) finished &= rank.finish_output();
    if ((finished && out_.empty() && err_.empty()) || output_abandoned_) return;
    poll_once();
  }
}

void Supervisor::poll_once() {
  std::vector<pollfd> items{{signals_.fd(), POLLIN, 0}};
  for (const RankProcess& rank : ranks_) rank.append_poll_items(items);
  for (const OutputSink* sink : {&out_, &err_}) {
    if (!sink->empty()) items.push_back({sink->fd(), POLLOUT, 0});
  }
  ::poll(items.data(), items.size(), poll_timeout());
  for (RankProcess& rank : ranks_) rank.transfer();
  on_signals();
  if (shells_awaited_) check_shells();
  if (deadline_ && clock_.now() >= *deadline_) on_deadline();
  out_.write_some();
  err_.write_some();
}

int Supervisor::poll_timeout() const {
  Time next = deadline_.value_or(Time::max());
  if (shells_awaited_) next = std::min(next, after(started_, options_.start_timeout));
  if (next == Time::max()) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - clock_.now());
  return static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 1'000'000));
}

void Supervisor::on_signals() {
  bool children = false;
  while (const std::optional<int> signal = signals_.next()) {
    if (*signal == SIGCHLD) {
      children = true;
    } else if (*signal == SIGUSR1 || *signal == SIGUSR2) {
      passed_on_.insert(*signal);
      for (RankProcess& rank : ranks_) rank.send_signal(*signal);
    } else {
      on_stop_signal(*signal);
    }
  }
  if (children) collect_ended();
}

void Supervisor::on_stop_signal(int signal) {
  // Only the wait for a stalled reader of the launcher's output is left to stop.
  if (all_ended()) output_abandoned_ = true;
  if (!stop_signal_) stop_signal_ = signal;
  if (signal == SIGINT && ++interrupts_ > 1) return begin_kill();
  if (phase_ < Phase::stopping) return begin_stop(signal);
  for (RankProcess& rank : ranks_) rank.send_signal(signal);
}

void Supervisor::collect_ended() {
  std::vector<std::size_t> ended;
  int wait_status = 0;
  for (pid_t pid; (pid = ::waitpid(-1, &wait_status, WNOHANG)) > 0;) {
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      if (ranks_[i].pid() != pid || !ranks_[i].running()) continue;
      ranks_[i].set_ended(ExitStatus::from_wait(wait_status));
      ended.push_back(i);
    }
  }
  note_failures(ended);
  // Processes whose parents just died have become children of the launcher.
  if (phase_ == Phase::killing) kill_remaining();
}

bool Supervisor::shells_missing() const {
  return std::ranges::any_of(ranks_, [](const auto& r) { return r.running() && r.never_ran(); });
}

void Supervisor::check_shells() {
  shells_awaited_ = phase_ == Phase::running && shells_missing();
  if (shells_awaited_ && clock_.now() >= after(started_, options_.start_timeout))
    abort_slow_shells();
}

/// The hanging shells are the cause of the failure, even if another rank failed first.
void Supervisor::abort_slow_shells() {
  shells_awaited_ = false;
  shell_wait_ = clock_.now() - started_;
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    if (!ranks_[i].running() || !ranks_[i].never_ran()) continue;
    ranks_[i].abort_start();
    if (!first_failure_ || !ranks_[*first_failure_].start_aborted()) first_failure_ = i;
  }
  begin_stop(SIGTERM);
}

void Supervisor::note_failures(const std::vector<std::size_t>& ended) {
  if (first_failure_ && phase_ > Phase::settling) return;
  // A killed rank is the cause; a rank that failed by itself, because it lost its peer, is the
  // effect. This holds even if the killed rank is reported later, for instance from another host.
  const auto killed = [&](std::size_t rank) {
    return ranks_[rank].exit_status()->status == 128 + SIGKILL;
  };
  for (const std::size_t rank : ended) {
    if (!ranks_[rank].exit_status()->failed()) continue;
    // The other ranks may end before the settling time, and withdraw their notes of it.
    if (is_missed_by_none(rank)) optional_then_.insert(rank);
    if (!first_failure_ || (killed(rank) && !killed(*first_failure_))) first_failure_ = rank;
  }
  if (!first_failure_ || phase_ != Phase::running) return;
  if (shells_missing() && clock_.now() - started_ >= kSlowShell) return abort_slow_shells();
  phase_ = Phase::settling;
  failed_ = clock_.now();
  deadline_ = after(failed_, kSettlingTime);
  for (RankProcess& rank : ranks_) rank.ask_for_notes();
}

bool Supervisor::is_optional(std::size_t rank) const {
  return std::ranges::any_of(ranks_, [&](const RankProcess& other) {
    return other.optional_ranks().contains(ranks_[rank].plan().place.rank);
  });
}

/// Returns true if a rank that has not failed says that the job does without this one. Others do
/// not know whether anybody is left.
bool Supervisor::is_missed_by_none(std::size_t rank) const {
  return std::ranges::any_of(ranks_, [&](const RankProcess& other) {
    const bool failed = other.exit_status() && other.exit_status()->failed();
    return !failed && other.optional_ranks().contains(ranks_[rank].plan().place.rank);
  });
}

/// Goes on if the job does, without the ranks that failed.
void Supervisor::settle() {
  std::vector<std::size_t> failed;
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    const std::optional<ExitStatus>& status = ranks_[i].exit_status();
    if (status && status->failed() && !missed_.contains(i)) failed.push_back(i);
  }
  const auto is_dispensable = [this](std::size_t rank) {
    return optional_then_.contains(rank) || is_missed_by_none(rank);
  };
  if (!std::ranges::all_of(failed, is_dispensable)) {
    // Optional ranks fail because of others.
    const auto cause =
        std::ranges::find_if(failed, [this](std::size_t rank) { return !is_optional(rank); });
    if (cause != failed.end() && is_optional(*first_failure_)) first_failure_ = *cause;
    return begin_stop(SIGTERM);
  }
  for (const std::size_t i : failed) {
    print_message(fmt::format("{} {}{}; the others go on without it", where(ranks_[i]),
                              describe(*ranks_[i].exit_status()), reason_of(ranks_[i])));
    missed_.insert(i);
  }
  first_failure_.reset();
  deadline_.reset();
  phase_ = Phase::running;
}

bool Supervisor::all_ended() const {
  return std::none_of(ranks_.begin(), ranks_.end(), [](const auto& r) { return r.running(); });
}

std::vector<pid_t> Supervisor::left_behind() const {
  std::set<pid_t> spared{watcher_.pid()};
  for (const RankProcess& rank : ranks_) {
    if (rank.running() && rank.plan().remote) spared.insert(rank.pid());
  }
  return descendants_of(::getpid(), spared);
}

bool Supervisor::is_finished() {
  if (!all_ended()) return false;
  const std::vector<pid_t> rest = left_behind();
  if (rest.empty()) return true;
  if (!std::exchange(remaining_signaled_, true)) {
    if (phase_ < Phase::stopping) begin_stop(SIGTERM);
    for (const pid_t pid : rest) ::kill(pid, SIGTERM);
  }
  return false;
}

void Supervisor::begin_stop(int signal) {
  phase_ = Phase::stopping;
  deadline_ = clock_.now() + options_.grace;
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    if (ranks_[i].running()) stopped_.insert(i);
    ranks_[i].send_signal(signal);
  }
}

void Supervisor::begin_kill() {
  phase_ = Phase::killing;
  deadline_ = clock_.now() + kConfirmation;
  for (RankProcess& rank : ranks_) rank.send_signal(SIGKILL);
  kill_remaining();
}

/// Kills the ranks as begin_kill() does, but lets other hosts complete a checkpoint.
void Supervisor::begin_end() {
  phase_ = Phase::killing;
  deadline_ = clock_.now() + kConfirmation;
  for (RankProcess& rank : ranks_) rank.end();
  kill_remaining();
}

bool Supervisor::is_saving() const {
  return std::ranges::any_of(ranks_, &RankProcess::is_saving);
}

void Supervisor::kill_remaining() {
  for (const pid_t pid : left_behind()) ::kill(pid, SIGKILL);
}

void Supervisor::on_deadline() {
  if (phase_ == Phase::settling) {
    const bool knows = std::ranges::none_of(ranks_, &RankProcess::awaits_notes);
    if (knows || clock_.now() >= after(failed_, kNotesTime)) return settle();
    deadline_ = clock_.now() + kNotesCheck;
    return;
  }
  if (is_saving() && interrupts_ < 2) {
    if (!std::exchange(wait_reported_, true)) print_message("waiting for a checkpoint to be saved");
    deadline_ = clock_.now() + kSavingCheck;
    return;
  }
  if (phase_ == Phase::stopping) {
    report_late_ranks();
    return begin_end();
  }
  for (RankProcess& rank : ranks_) rank.abandon();
  kill_remaining();
  deadline_ = clock_.now() + kConfirmation;
}

void Supervisor::print_message(const std::string& sentence) {
  error_sink().append(fmt::format("{}: {}\n", options_.name, sentence));
}

std::string Supervisor::where(const RankProcess& rank) const {
  if (!options_.process.empty()) return options_.process;
  return fmt::format("rank {} on host {}", rank.plan().place.rank, rank.plan().host.name);
}

std::string Supervisor::why_never_ran(const RankProcess& rank) const {
  std::string how = describe(*rank.exit_status());
  if (rank.ran_nothing()) how = fmt::format("ran nothing: {}", kForwardStdin);
  if (rank.start_aborted()) {
    how = fmt::format(
        "had not started the rank after {:.3g} s: does the host answer? (--start-timeout)",
        std::chrono::duration<double>(shell_wait_).count());
  }
  const std::string& host = rank.plan().host.name;
  const auto remedy = remedy_for_ssh(options_.rsh, host, rank.exit_status()->status);
  if (!remedy.empty()) how += "; " + remedy;
  return fmt::format("\"{} {} sh\" {}", fmt::join(options_.rsh, " "), host, how);
}

bool Supervisor::was_stopped(const RankProcess& rank) const {
  const int status = rank.exit_status()->status;
  return (stop_signal_ && status == 128 + *stop_signal_) || passed_on_.contains(status - 128);
}

void Supervisor::report_late_ranks() {
  std::string late;
  for (const RankProcess& rank : ranks_) {
    if (rank.running())
      late += fmt::format("{}{}", late.empty() ? "" : ", ", rank.plan().place.rank);
  }
  if (late.empty()) return;
  print_message(fmt::format("killing ranks that did not end within {:g} s (--grace): rank {}",
                            std::chrono::duration<double>(options_.grace).count(), late));
}

void Supervisor::report_end() {
  if (stop_signal_) print_message(fmt::format("stopped by {}", signal_name(*stop_signal_)));
  if (!stop_signal_ && first_failure_ && was_stopped(ranks_[*first_failure_])) {
    print_message(fmt::format("stopped by {}",
                              signal_name(ranks_[*first_failure_].exit_status()->status - 128)));
  }
  if (out_.error() != 0) {
    print_message(fmt::format("cannot write to standard output: {}", std::strerror(out_.error())));
  }
  if (!first_failure_) return;
  const RankProcess& rank = ranks_[first_cause()];
  if (died_of_lost_output(rank)) return;
  const char* others = ranks_.size() > 1 ? "; the other ranks were stopped" : "";
  if (rank.pid() < 0) {
    print_message(fmt::format("{} could not be started{}", where(rank), others));
  } else if (rank.never_ran() && !was_stopped(rank)) {
    print_message(
        fmt::format("{} could not be started: {}{}", where(rank), why_never_ran(rank), others));
  } else if (!was_stopped(rank)) {
    print_message(fmt::format("{} {}{}{}", where(rank), describe(*rank.exit_status()),
                              reason_of(rank), others));
  }
}

}  // namespace gradwire::cli
