#include "gradwire/cli/launch/rank_process.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <utility>

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gradwire/base/cpu.h"
#include "gradwire/cli/launch/remote_script.h"
#include "gradwire/cli/launch/signal_source.h"

namespace gradwire::cli {
namespace {

std::string prefix_of(const RankPlan& plan, RankOutput output) {
  const bool plain = output == RankOutput::unchanged ||
                     (output == RankOutput::first_plain && plan.place.rank == 0);
  return plain ? "" : fmt::format("[{}] ", plan.place.rank);
}

/// `report`: descriptor of the file for the rank's report.
SpawnRequest local_request(const RankPlan& plan, const LaunchOptions& options, bool plain,
                           int report) {
  VariableMap variables = own_variables();
  for (const auto& [name, value] : plan.variables) variables[name] = value;
  variables[bootstrap::kReportVariable] = fmt::format("/proc/{}/fd/{}", ::getpid(), report);
  const int threads = std::max(1, usable_cores() / plan.place.local_world_size);
  variables.try_emplace("OMP_NUM_THREADS", std::to_string(threads));
  // Output goes through a pipe, where Python would keep it until a buffer is full, or lose it.
  variables.try_emplace("PYTHONUNBUFFERED", "1");
  return {options.program, entries_of(variables), false, !plain, true};
}

/// The remote shell must outlive the launcher, to tell the other host that it is dead. It gets no
/// controlling terminal.
SpawnRequest remote_request(const RankPlan& plan, const std::string& run,
                            const LaunchOptions& options) {
  std::vector<std::string> arguments = options.rsh;
  arguments.push_back(plan.host.name);
  arguments.emplace_back("sh");
  VariableMap variables = own_variables();
  variables.insert_or_assign(kShellMark, run);
  return {.arguments = arguments,
          .environment = entries_of(variables),
          .pipe_stdin = true,
          .die_with_parent = false,
          .own_session = true};
}

std::string script_for(const RankPlan& plan, const std::string& run, const LaunchOptions& options) {
  const auto grace = std::chrono::ceil<std::chrono::seconds>(options.grace).count();
  return remote_script({plan.place.rank, run, std::filesystem::current_path(), plan.variables,
                        options.program, plan.place.local_world_size, static_cast<int>(grace)});
}

}  // namespace

ExitStatus ExitStatus::from_wait(int wait_status) {
  if (WIFSIGNALED(wait_status)) return {128 + WTERMSIG(wait_status), WTERMSIG(wait_status)};
  return {WEXITSTATUS(wait_status), 0};
}

std::string describe(const ExitStatus& exit_status) {
  if (exit_status.signal != 0) {
    return fmt::format("was killed by signal {} ({})", exit_status.signal,
                       signal_name(exit_status.signal));
  }
  if (!exit_status.failed()) return "ended before the others had finished";
  const int signal = exit_status.status - 128;
  if (signal > 0 && signal < SIGRTMIN) {
    return fmt::format("failed with exit status {} (128 + signal {}, {})", exit_status.status,
                       signal, signal_name(signal));
  }
  return fmt::format("failed with exit status {}", exit_status.status);
}

RankProcess::RankProcess(RankPlan plan, const std::string& run, OutputSink& out, OutputSink& err)
    : plan_(std::move(plan)),
      run_(run),
      out_{UniqueFd(), LinePrefixer(""), out},
      err_{UniqueFd(), LinePrefixer(""), err} {}

Status RankProcess::start(const LaunchOptions& options) {
  const std::string prefix = prefix_of(plan_, options.output);
  out_.lines = LinePrefixer(prefix);
  err_.lines = LinePrefixer(prefix);
  if (plan_.remote) {
    input_ = script_for(plan_, run_, options);
  } else {
    report_file_ = UniqueFd(::memfd_create("gradwire-report", MFD_CLOEXEC));
  }
  Result<Process> process =
      spawn(plan_.remote ? remote_request(plan_, run_, options)
                         : local_request(plan_, options, prefix.empty(), report_file_.get()));
  if (!process) return tl::unexpected(process.error());
  process_ = std::move(*process);
  out_.fd = std::move(process_.out);
  err_.fd = std::move(process_.err);
  return {};
}

void RankProcess::send_signal(int signal) {
  if (!running()) return;
  if (!plan_.remote) {
    ::kill(-process_.pid, signal);
  } else if (!remote_process_.empty()) {
    input_ += control_line(signal, remote_process_);
    write_input();
  } else if (signal != SIGUSR1 && signal != SIGUSR2) {
    if (!ended_by_) ended_by_ = signal;
    abandon();
  }
}

void RankProcess::end() {
  if (!running()) return;
  if (!plan_.remote || remote_process_.empty()) return send_signal(SIGKILL);
  input_ += end_line(remote_process_);
  write_input();
}

bool RankProcess::is_saving() const {
  return running() && (saves_ || bootstrap::is_saving(report_contents()));
}

void RankProcess::ask_for_notes() {
  if (!running() || remote_process_.empty()) return;
  awaits_notes_ = true;
  input_ += notes_line(remote_process_);
  write_input();
}

bootstrap::OptionalRanks RankProcess::optional_ranks() const {
  return report_file_.valid() ? bootstrap::optional_ranks(report_contents()) : optional_;
}

void RankProcess::abort_start() {
  start_aborted_ = true;
  abandon();
}

void RankProcess::abandon() {
  if (running()) ::kill(-process_.pid, SIGKILL);
}

void RankProcess::append_poll_items(std::vector<pollfd>& items) const {
  for (const Stream* stream : {&out_, &err_}) {
    if (stream->fd.valid() && !stream->sink.full()) items.push_back({stream->fd.get(), POLLIN, 0});
  }
  if (!input_.empty() && process_.in.valid()) items.push_back({process_.in.get(), POLLOUT, 0});
}

void RankProcess::transfer() {
  for (Stream* stream : {&out_, &err_}) {
    close_if_unread(*stream);
    if (stream->fd.valid() && !stream->sink.full()) read_from(*stream);
  }
  write_input();
}

void RankProcess::close_if_unread(Stream& stream) {
  // The reader of the launcher's output is gone: closing the pipe gives the rank SIGPIPE, as if it
  // wrote there itself.
  if (stream.sink.broken()) stream.fd.close();
}

void RankProcess::read_from(Stream& stream) {
  std::array<char, 1 << 16> piece;
  const ssize_t got = ::read(stream.fd.get(), piece.data(), piece.size());
  if (got > 0) {
    take_in(stream, {piece.data(), static_cast<std::size_t>(got)});
  } else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
    end_stream(stream);
  }
}

void RankProcess::take_in(Stream& stream, std::string_view text) {
  if (never_ran() && &stream == &out_) {
    find_ready_line(stream, text);
  } else {
    const bool may_report = plan_.remote && &stream == &err_;
    stream.lines.feed(may_report ? without_report(text) : text, stream.sink.buffer());
  }
}

/// Takes the line of the remote script out of what the rank writes to stderr.
std::string RankProcess::without_report(std::string_view text) {
  held_stderr_ += text;
  const std::string mark = report_line(run_) + " ";
  std::size_t at = held_stderr_.find(mark);
  if (at == std::string::npos) {  // Its beginning may be the end of this piece.
    at = held_stderr_.size() - std::min(held_stderr_.size(), mark.size() - 1);
    while (!mark.starts_with(std::string_view(held_stderr_).substr(at))) ++at;
  }
  std::string passed = held_stderr_.substr(0, at);
  held_stderr_.erase(0, at);
  const std::size_t end = held_stderr_.find('\n');
  if (!held_stderr_.starts_with(mark) || end == std::string::npos) return passed;
  const std::string line = held_stderr_.substr(mark.size(), end - mark.size());
  if (line == bootstrap::kSaving) {
    saves_ = true;
  } else if (line.starts_with(bootstrap::kOptional)) {
    optional_ = bootstrap::optional_ranks(line);
    awaits_notes_ = false;
  } else {
    report_ = bootstrap::first_report(line);
  }
  return passed + without_report(std::exchange(held_stderr_, {}).substr(end + 1));
}

void RankProcess::find_ready_line(Stream& stream, std::string_view text) {
  greeting_ += text;
  const std::string begin = ready_line(run_) + " ";
  const std::size_t at = greeting_.find(begin);
  const std::size_t end = at == std::string::npos ? at : greeting_.find('\n', at);
  if (end == std::string::npos) return;
  remote_process_ = greeting_.substr(at + begin.size(), end - at - begin.size());
  // Login files of the host may print. The rank's output, which may be JSON, must not contain that.
  err_.lines.feed(greeting_.substr(0, at), err_.sink.buffer());
  err_.lines.finish(err_.sink.buffer());
  const std::string rest = greeting_.substr(end + 1);
  greeting_.clear();
  stream.lines.feed(rest, stream.sink.buffer());
}

void RankProcess::write_input() {
  if (input_.empty() || !process_.in.valid()) return;
  const ssize_t wrote = ::write(process_.in.get(), input_.data(), input_.size());
  if (wrote > 0) input_.erase(0, static_cast<std::size_t>(wrote));
  if (wrote < 0 && errno != EAGAIN && errno != EINTR) process_.in.close();
}

void RankProcess::set_ended(const ExitStatus& exit_status) {
  exit_status_ = exit_status;
  // Report why the launcher killed the shell, not that it was killed.
  if (start_aborted_) exit_status_ = ExitStatus{kCannotStart, 0};
  if (!start_aborted_ && ended_by_ && exit_status.signal == SIGKILL) {
    exit_status_ = ExitStatus{128 + *ended_by_, *ended_by_};
  }
  process_.in.close();
  if (report_file_.valid()) report_ = bootstrap::first_report(report_contents());
  optional_ = optional_ranks();
  report_file_.close();
  if (!exit_status_->failed() && never_ran()) check_started();
}

/// Returns what is in the report file of a rank on this host; "" for other hosts.
std::string RankProcess::report_contents() const {
  std::string contents;
  std::array<char, 4096> piece;
  while (report_file_.valid()) {
    const ssize_t got = ::pread(report_file_.get(), piece.data(), piece.size(),
                                static_cast<off_t>(contents.size()));
    if (got <= 0) break;
    contents.append(piece.data(), static_cast<std::size_t>(got));
  }
  return contents;
}

void RankProcess::check_started() {
  // The ready line may be in the last output, which is one read at most: it fits into the pipe.
  if (out_.fd.valid()) read_from(out_);
  // Output whose reader is gone is not read, so that nothing is known about the ready line.
  ran_nothing_ = never_ran() && !out_.sink.broken();
  if (ran_nothing_) exit_status_ = ExitStatus{kCannotStart, 0};
}

bool RankProcess::finish_output() {
  return finish(out_) && finish(err_);
}

bool RankProcess::finish(Stream& stream) {
  close_if_unread(stream);
  while (stream.fd.valid()) {
    if (stream.sink.full()) return false;
    pollfd item{stream.fd.get(), POLLIN, 0};
    // A process outside the job may still hold the write end, but no more output of the rank comes.
    if (::poll(&item, 1, 0) <= 0) end_stream(stream);
    if (stream.fd.valid()) read_from(stream);
  }
  return true;
}

void RankProcess::end_stream(Stream& stream) {
  stream.fd.close();
  std::string& held = &stream == &out_ ? greeting_ : held_stderr_;
  stream.lines.feed(std::exchange(held, {}), stream.sink.buffer());
  stream.lines.finish(stream.sink.buffer());
}

}  // namespace gradwire::cli
