#pragma once

#include <string>

#include <sys/types.h>

#include "gradwire/base/unique_fd.h"

namespace gradwire {

/// A second process that outlives the launcher if that is killed outright, and then kills what the
/// run has left: the ranks themselves die with the launcher, but neither what they have started nor
/// remote shells that hang. So it does when it is destroyed without having been released, as after
/// an exception. Make it while the process has one thread.
class Watcher {
 public:
  /// `run`: which marks to look for, see processes_of_run().
  explicit Watcher(const std::string& run);
  ~Watcher();
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;

  /// The run has ended and left nothing.
  void release();

  pid_t pid() const { return pid_; }

 private:
  UniqueFd lifeline_;  ///< Nobody else has this end of the pipe: it closes when we die.
  pid_t pid_ = -1;
};

}  // namespace gradwire
