#pragma once

#include <csignal>
#include <initializer_list>
#include <optional>
#include <string>

#include "gradwire/base/unique_fd.h"

namespace gradwire {

/// Turns signals into something that can be polled. While it lives, these signals do nothing else
/// to this process, and SIGPIPE is ignored; the former state comes back at the end.
class SignalSource {
 public:
  /// Also signals that this process was started with ignored are heard from now on, except SIGHUP
  /// (nohup means it).
  explicit SignalSource(std::initializer_list<int> signals);
  ~SignalSource();
  SignalSource(const SignalSource&) = delete;
  SignalSource& operator=(const SignalSource&) = delete;

  /// Polls readable when a signal has come.
  int fd() const { return fd_.get(); }

  /// The next signal that has come, or nothing.
  std::optional<int> next();

 private:
  UniqueFd fd_;
  sigset_t former_mask_{};
  struct sigaction former_pipe_ {};
};

/// "SIGTERM"; "signal 42" for one without a name.
std::string signal_name(int signal);

}  // namespace gradwire
