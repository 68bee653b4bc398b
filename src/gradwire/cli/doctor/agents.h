#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include <poll.h>

#include "gradwire/cli/doctor/facts.h"
#include "gradwire/cli/doctor/pipe_store.h"
#include "gradwire/cli/launch/launch.h"
#include "gradwire/cli/launch/plan.h"
#include "gradwire/cli/launch/process.h"
#include "gradwire/comm/store.h"
#include "gradwire/net/deadline.h"

namespace gradwire {

/// One process of ours on each host, started over the remote shell, and the store that they leave
/// each other notes in, which lives here: nothing else need connect the hosts. What one host's
/// process does not live to say the others do not wait for.
///
/// Has the process ignore SIGPIPE. Single-threaded: run() serves the store until all have ended;
/// then it is to be read.
class Agents final : public Store {
 public:
  /// Starts `options.program` on the host of each rank of `plan`.
  Agents(const LaunchOptions& options, const JobPlan& plan);
  ~Agents() override;
  Agents(const Agents&) = delete;
  Agents& operator=(const Agents&) = delete;

  /// Returns when all have ended, or after `patience`.
  void run(Duration patience);

  /// By host: its name, and if it could not be examined, why, with the remedy.
  std::vector<Patient> patients() const;

  Status set(const std::string& key, const std::string& value) override;
  /// Does not wait: timeout if nobody has set it.
  Result<std::string> get(const std::string& key, Duration timeout) override;

 private:
  struct Waiting {
    std::string key;
    Deadline deadline;
  };

  struct Agent {
    std::string name;
    std::string command;  ///< For people: "ssh b sh".
    Process process;
    bool remote = false;
    bool greeted = false;  ///< The remote shell has said that it runs.
    bool ended = false;
    std::string from;     ///< Said, and not yet a whole line.
    std::string to;       ///< To be sent.
    std::string errors;   ///< What it wrote to stderr.
    std::string failure;  ///< Why it could not be started at all.
    int status = 0;       ///< Of its end.
    std::optional<Waiting> waiting;
  };

  void start(const LaunchOptions& options, const RankPlan& rank);
  bool all_ended() const;
  void poll_once(Deadline deadline);
  void transfer(Agent& agent);
  void take_lines(Agent& agent);
  void act_on(Agent& agent, const std::string& line);
  void answer_those_waiting();
  std::optional<Result<std::string>> answer_to(const Waiting& waiting) const;
  void end(Agent& agent);
  void explain(const Agent& agent, Patient& patient) const;

  std::string greeting_;
  std::string program_;
  std::vector<Agent> agents_;
  std::map<std::string, std::string> notes_;
};

}  // namespace gradwire
