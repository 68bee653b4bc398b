#include "gradwire/cli/doctor/agents.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <filesystem>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/wait.h>

#include "gradwire/cli/launch/cards.h"
#include "gradwire/cli/launch/remote_script.h"

namespace gradwire::cli {
namespace {

/// Timeout for a process to end after it closed its output.
constexpr Duration kReapTimeout = std::chrono::seconds(2);

/// Shells' exit statuses for a program that cannot be run or does not exist.
constexpr int kCannotRun = 126;
constexpr int kNotFound = 127;

/// One compound command, so that the shell has read all of it before it execs the program, which
/// then reads the rest of the input.
std::string script_for(const RankPlan& rank, const std::vector<std::string>& program,
                       const std::string& greeting) {
  std::string script = fmt::format("{{\ncd -- {} 2>/dev/null || cd /\n",
                                   shell_quote(std::filesystem::current_path().string()));
  for (const auto& [name, value] : rank.variables) {
    script += fmt::format("export {}={}\n", name, shell_quote(value));
  }
  std::string words;
  for (const std::string& word : program) words += " " + shell_quote(word);
  return script + fmt::format("{}echo {}\nexec{}\n}}\n", kCardScript, greeting, words);
}

/// Returns the number after the last slash of a store key: the host that writes the entry.
std::optional<std::size_t> host_of(const std::string& key) {
  const std::string digits = key.substr(key.rfind('/') + 1);
  std::size_t host = 0;
  const auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), host);
  if (code != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return host;
}

std::string last_lines(const std::string& text) {
  constexpr std::size_t kMaxBytes = 500;
  std::string last = text.size() > kMaxBytes ? text.substr(text.size() - kMaxBytes) : text;
  while (!last.empty() && last.back() == '\n') last.pop_back();
  return last;
}

/// Appends available bytes; returns false at end of file or on error.
bool read_into(const UniqueFd& fd, std::string& text) {
  std::array<char, 1 << 16> piece;
  const ssize_t got = ::read(fd.get(), piece.data(), piece.size());
  if (got > 0) text.append(piece.data(), static_cast<std::size_t>(got));
  return got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR));
}

/// Waits for a child and returns its exit status (128 + signal); kills it at the deadline.
int reap(pid_t pid, net::Deadline deadline) {
  int status = 0;
  while (::waitpid(pid, &status, WNOHANG) == 0) {
    if (deadline.passed()) ::kill(-pid, SIGKILL);
    ::poll(nullptr, 0, 10);
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/// `errors`: error output of the shell or the dynamic loader.
const char* remedy_for_failed_start(const std::string& errors) {
  if (errors.find("loading shared libraries") == std::string::npos)
    return "install gradwire at the same path on every host";
  return "the program exists, but a library that it is linked with is missing: install it on that "
         "host (scripts/setup.sh build installs all of them), or use the program of the Python "
         "package, which bundles its libraries";
}

}  // namespace

Agents::Agents(const LaunchOptions& options, const JobPlan& plan, const Clock& clock)
    : clock_(clock),
      greeting_("gradwire-doctor-runs-" + plan.run),
      program_(options.program.front()),
      rsh_(options.rsh) {
  // Writing to a shell that has ended must not kill this process.
  ::signal(SIGPIPE, SIG_IGN);
  for (const RankPlan& rank : plan.ranks) start(options, rank);
}

Agents::~Agents() {
  for (Agent& agent : agents_) {
    if (agent.process.pid < 0 || agent.ended) continue;
    agent.process.in.close();
    ::kill(-agent.process.pid, SIGTERM);
    reap(agent.process.pid, net::Deadline::after(clock_, kReapTimeout));
  }
}

void Agents::start(const LaunchOptions& options, const RankPlan& rank) {
  Agent agent{.name = rank.host.name, .remote = rank.remote};
  VariableMap variables = own_variables();
  std::vector<std::string> arguments = options.program;
  if (rank.remote) {
    agent.to = script_for(rank, options.program, greeting_);
    arguments = options.rsh;
    arguments.push_back(rank.host.name);
    arguments.emplace_back("sh");
  } else {
    agent.greeted = true;
    for (const auto& [name, value] : rank.variables) variables[name] = value;
  }
  agent.command = fmt::format("{}", fmt::join(arguments, " "));
  auto process = spawn({.arguments = arguments,
                        .environment = entries_of(variables),
                        .pipe_stdin = true,
                        .own_session = rank.remote});
  if (process) {
    agent.process = std::move(*process);
  } else {
    agent.failure = process.error().message;
    agent.ended = true;
  }
  agents_.push_back(std::move(agent));
}

void Agents::run(Duration patience) {
  const net::Deadline deadline = net::Deadline::after(clock_, patience);
  while (!all_ended() && !deadline.passed()) {
    poll_once(deadline);
    answer_pending_requests();
  }
}

bool Agents::all_ended() const {
  return std::ranges::all_of(agents_, &Agent::ended);
}

void Agents::poll_once(net::Deadline deadline) {
  std::vector<pollfd> items;
  for (const Agent& agent : agents_) {
    if (agent.ended) continue;
    items.push_back({agent.process.out.get(), POLLIN, 0});
    if (agent.process.err.valid()) items.push_back({agent.process.err.get(), POLLIN, 0});
    if (!agent.to.empty()) items.push_back({agent.process.in.get(), POLLOUT, 0});
    if (agent.waiting)
      deadline = net::Deadline(clock_, std::min(deadline.at(), agent.waiting->deadline.at()));
  }
  ::poll(items.data(), items.size(), net::milliseconds_of(deadline.left()));
  for (Agent& agent : agents_) {
    if (!agent.ended) transfer(agent);
  }
}

void Agents::transfer(Agent& agent) {
  if (!agent.to.empty()) {
    const ssize_t wrote = ::write(agent.process.in.get(), agent.to.data(), agent.to.size());
    if (wrote > 0) agent.to.erase(0, static_cast<std::size_t>(wrote));
    if (wrote < 0 && errno != EAGAIN && errno != EINTR) agent.to.clear();
  }
  if (agent.process.err.valid() && !read_into(agent.process.err, agent.errors)) {
    agent.process.err.close();
  }
  const bool more = read_into(agent.process.out, agent.from);
  process_lines(agent);
  if (!more) end(agent);
}

void Agents::process_lines(Agent& agent) {
  for (std::size_t end; (end = agent.from.find('\n')) != std::string::npos;) {
    const std::string line = agent.from.substr(0, end);
    agent.from.erase(0, end + 1);
    // A login banner may precede the greeting.
    if (agent.greeted) {
      handle_line(agent, line);
    } else {
      agent.greeted = line == greeting_;
    }
  }
}

void Agents::handle_line(Agent& agent, const std::string& line) {
  const auto request = parse_request(line);
  if (!request) {
    agent.errors += line + "\n";
  } else if (request->value) {
    (void)set(request->key, *request->value);
  } else {
    agent.waiting = Waiting{request->key, net::Deadline::after(clock_, request->patience)};
  }
}

void Agents::answer_pending_requests() {
  for (Agent& agent : agents_) {
    if (agent.ended || !agent.waiting) continue;
    if (const auto answer = answer_to(*agent.waiting)) {
      agent.to += line_of(*answer);
      agent.waiting.reset();
    }
  }
}

std::optional<Result<std::string>> Agents::answer_to(const Waiting& waiting) const {
  if (const auto entry = entries_.find(waiting.key); entry != entries_.end()) return entry->second;
  const auto host = host_of(waiting.key);
  const bool never = host && *host < agents_.size() && agents_[*host].ended;
  if (!never && !waiting.deadline.passed()) return std::nullopt;
  return failure(ErrorKind::timeout, fmt::format("no host has reported {}", waiting.key));
}

void Agents::end(Agent& agent) {
  agent.ended = true;
  agent.waiting.reset();
  agent.process.in.close();
  // Remaining error output.
  while (agent.process.err.valid()) {
    pollfd item{agent.process.err.get(), POLLIN, 0};
    const bool more = ::poll(&item, 1, 0) > 0 && read_into(agent.process.err, agent.errors);
    if (!more) agent.process.err.close();
  }
  agent.status = reap(agent.process.pid, net::Deadline::after(clock_, kReapTimeout));
}

std::vector<HostReport> Agents::reports() const {
  std::vector<HostReport> all;
  for (const Agent& agent : agents_) {
    all.push_back({.name = agent.name, .failure = {}, .remedy = {}, .info = {}, .reach = {}});
    explain(agent, all.back());
  }
  return all;
}

void Agents::explain(const Agent& agent, HostReport& report) const {
  const std::string said = agent.errors.empty() ? "" : ": " + last_lines(agent.errors);
  if (!agent.failure.empty()) {
    report.failure = agent.failure;
    report.remedy = "name a remote shell that is installed on this host with --rsh";
  } else if (!agent.ended) {
    report.failure = agent.greeted ? "the doctor there did not finish" + said
                                   : fmt::format("\"{}\" does not answer{}", agent.command, said);
    report.remedy = fmt::format("check that the host is up: {}", agent.command);
  } else if (!agent.greeted && agent.status == 0) {
    report.failure = fmt::format("\"{}\" ran nothing{}", agent.command, said);
    report.remedy = kForwardStdin;
  } else if (!agent.greeted) {
    report.failure =
        fmt::format("\"{}\" failed with status {}{}", agent.command, agent.status, said);
    report.remedy = remedy_for_ssh(rsh_, agent.name, agent.status);
    if (report.remedy.empty()) {
      report.remedy =
          "the remote shell must work without prompts: check the host's name, its address, and "
          "that your key is authorized there, or name another remote shell with --rsh";
    }
  } else if (agent.status == kNotFound || agent.status == kCannotRun) {
    report.failure = fmt::format("{} cannot be run there{}", program_, said);
    report.remedy = remedy_for_failed_start(agent.errors);
  } else if (agent.status != 0) {
    report.failure = fmt::format("the doctor there failed with status {}{}", agent.status, said);
    report.remedy = "install the same gradwire on all hosts";
  }
}

Status Agents::set(const std::string& key, const std::string& value) {
  entries_[key] = value;
  return {};
}

Result<std::string> Agents::get(const std::string& key, Duration) {
  const auto entry = entries_.find(key);
  if (entry != entries_.end()) return entry->second;
  return failure(ErrorKind::timeout, "its report is incomplete");
}

}  // namespace gradwire::cli
