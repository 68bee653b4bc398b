#pragma once

#include <csignal>
#include <initializer_list>
#include <optional>
#include <string>

#include "gradwire/base/unique_fd.h"

namespace gradwire::cli {

/// Makes signals pollable (signalfd(2)). While it lives, these signals have no other effect on this
/// process, and SIGPIPE is ignored; the destructor restores the previous state.
class SignalSource {
 public:
  /// Signals that were ignored when this process started are also received, except SIGHUP (nohup
  /// relies on its being ignored).
  explicit SignalSource(std::initializer_list<int> signals);
  ~SignalSource();
  SignalSource(const SignalSource&) = delete;
  SignalSource& operator=(const SignalSource&) = delete;

  /// Polls readable when a signal is pending.
  int fd() const { return fd_.get(); }

  /// Returns the next pending signal; nullopt if there is none.
  std::optional<int> next();

 private:
  UniqueFd fd_;
  sigset_t former_mask_{};
  struct sigaction former_pipe_ {};
};

/// Returns "SIGTERM"; "signal 42" for a signal without a name.
std::string signal_name(int signal);

}  // namespace gradwire::cli
