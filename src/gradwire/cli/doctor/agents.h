#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include <poll.h>

#include "gradwire/bootstrap/store/store.h"
#include "gradwire/cli/doctor/host_report.h"
#include "gradwire/cli/doctor/pipe_store.h"
#include "gradwire/cli/launch/launch.h"
#include "gradwire/cli/launch/process.h"
#include "gradwire/net/deadline.h"

namespace gradwire::cli {

/// A gradwire process on each host, started over the remote shell, and the store through which they
/// report. The store is in this process, so that hosts need no connection to each other. Entries of
/// a process that has ended are not waited for.
///
/// Makes the process ignore SIGPIPE. Single-threaded: run() serves the store until all agents have
/// ended; read the store after that.
class Agents final : public bootstrap::Store {
 public:
  /// Starts `options.program` on the host of each rank of `plan`.
  Agents(const LaunchOptions& options, const JobPlan& plan, const Clock& clock);
  ~Agents() override;
  Agents(const Agents&) = delete;
  Agents& operator=(const Agents&) = delete;

  /// Returns when all agents have ended, or after `patience`.
  void run(Duration patience);

  /// Returns for each host its name and, if it could not be examined, the reason and the remedy.
  std::vector<HostReport> reports() const;

  Status set(const std::string& key, const std::string& value) override;
  /// Does not wait; fails with timeout if the key was not set.
  Result<std::string> get(const std::string& key, Duration timeout) override;

 private:
  struct Waiting {
    std::string key;
    net::Deadline deadline;
  };

  struct Agent {
    std::string name;
    std::string command;  ///< For messages: "ssh b sh".
    Process process;
    bool remote = false;
    bool greeted = false;  ///< The remote shell has printed the greeting.
    bool ended = false;
    std::string from;     ///< Incomplete line of its output.
    std::string to;       ///< Pending input.
    std::string errors;   ///< Its stderr.
    std::string failure;  ///< Why it could not be started.
    int status = 0;       ///< Exit status.
    std::optional<Waiting> waiting;
  };

  void start(const LaunchOptions& options, const RankPlan& rank);
  bool all_ended() const;
  void poll_once(net::Deadline deadline);
  void transfer(Agent& agent);
  void process_lines(Agent& agent);
  void handle_line(Agent& agent, const std::string& line);
  void answer_pending_requests();
  std::optional<Result<std::string>> answer_to(const Waiting& waiting) const;
  void end(Agent& agent);
  void explain(const Agent& agent, HostReport& report) const;

  const Clock& clock_;
  std::string greeting_;
  std::string program_;
  std::vector<std::string> rsh_;
  std::vector<Agent> agents_;
  std::map<std::string, std::string> entries_;
};

}  // namespace gradwire::cli
