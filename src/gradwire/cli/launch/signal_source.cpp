#include "gradwire/cli/launch/signal_source.h"

#include <cerrno>
#include <cstring>

#include <sys/signalfd.h>
#include <unistd.h>

#include "gradwire/base/error.h"

namespace gradwire::cli {

SignalSource::SignalSource(std::initializer_list<int> signals) {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int signal : signals) {
    ::sigaddset(&set, signal);
    // The kernel discards an ignored signal before signalfd sees it.
    if (signal != SIGHUP) ::signal(signal, SIG_DFL);
  }
  ::sigprocmask(SIG_BLOCK, &set, &former_mask_);
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &ignore, &former_pipe_);
  fd_ = UniqueFd(::signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC));
  if (!fd_.valid()) {
    throw Exception(ErrorKind::system, std::string("signalfd: ") + std::strerror(errno));
  }
}

SignalSource::~SignalSource() {
  ::sigaction(SIGPIPE, &former_pipe_, nullptr);
  ::sigprocmask(SIG_SETMASK, &former_mask_, nullptr);
}

std::optional<int> SignalSource::next() {
  signalfd_siginfo info{};
  if (::read(fd_.get(), &info, sizeof info) != sizeof info) return std::nullopt;
  return static_cast<int>(info.ssi_signo);
}

std::string signal_name(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name ? std::string("SIG") + name : "signal " + std::to_string(signal);
}

}  // namespace gradwire::cli
