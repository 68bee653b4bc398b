#pragma once

#include <string>

#include <sys/types.h>

#include "gradwire/base/unique_fd.h"

namespace gradwire::cli {

/// A second process that outlives the launcher if the launcher is killed, and then kills the rest
/// of the run. The ranks themselves die with the launcher (PR_SET_PDEATHSIG), but their children
/// and hanging remote shells do not. It does the same if the Watcher is destroyed without
/// release(), as after an exception. Construct it while the process is single-threaded.
class Watcher {
 public:
  /// `run`: the mark to look for, see processes_of_run().
  explicit Watcher(const std::string& run);
  ~Watcher();
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;

  /// Reports that the run has ended and left no process.
  void release();

  pid_t pid() const { return pid_; }

 private:
  UniqueFd lifeline_;  ///< Only the launcher has this end: it closes when the launcher dies.
  pid_t pid_ = -1;
};

}  // namespace gradwire::cli
