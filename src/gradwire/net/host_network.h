#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "gradwire/base/clock.h"
#include "gradwire/net/socket.h"

namespace gradwire::net {

/// A thread; the destructor waits until its function has returned.
class NetworkThread {
 public:
  virtual ~NetworkThread() = default;
};

/// The interface to the host that a process needs to connect to others: time, sockets and threads.
/// The bootstrap takes it as an argument, so that the same code runs over a simulated network
/// (tests/bootstrap/simulation). Thread-safe. Must outlive all that it has made.
class HostNetwork {
 public:
  virtual ~HostNetwork() = default;
  virtual const Clock& clock() const = 0;
  virtual Result<Socket> listen_on(const SocketAddress& address) const = 0;
  virtual Result<Socket> start_connect(const SocketAddress& to, const SocketAddress& source = {},
                                       const std::string& interface = "") const = 0;
  /// Returns two streams connected to each other, for threads of this process. Fails with system.
  virtual Result<std::pair<Socket, Socket>> make_pair() const = 0;
  /// Returns after `duration`. Only where there is no event to wait for.
  virtual void pause(Duration duration) const = 0;
  virtual std::unique_ptr<NetworkThread> start_thread(std::function<void()> run) const = 0;
};

/// The kernel's (net/socket.h).
class KernelNetwork final : public HostNetwork {
 public:
  const Clock& clock() const override { return clock_; }
  Result<Socket> listen_on(const SocketAddress& address) const override;
  Result<Socket> start_connect(const SocketAddress& to, const SocketAddress& source,
                               const std::string& interface) const override;
  Result<std::pair<Socket, Socket>> make_pair() const override;
  void pause(Duration duration) const override;
  std::unique_ptr<NetworkThread> start_thread(std::function<void()> run) const override;

 private:
  SteadyClock clock_;
};

/// Runs an event loop on a thread of its own.
class LoopThread {
 public:
  /// Calls `loop` on the thread, and destroys it there. It must return when `stop` becomes
  /// readable, and may pass `stop` to notify(). Fails with system; `what` begins the error.
  static Result<std::unique_ptr<LoopThread>> start(const HostNetwork& network,
                                                   const std::string& what,
                                                   std::function<void(const Socket& stop)> loop);

  /// Stops the loop and waits for its end.
  ~LoopThread();
  LoopThread(const LoopThread&) = delete;
  LoopThread& operator=(const LoopThread&) = delete;

  /// Called by the loop: its owner's wait_until() checks the condition again.
  static void notify(const Socket& stop);

  /// Waits until `condition` holds; returns false if the deadline passes first.
  bool wait_until(Deadline deadline, const std::function<bool()>& condition);

 private:
  LoopThread(Socket ours, Socket theirs) : ours_(std::move(ours)), theirs_(std::move(theirs)) {}

  Socket ours_, theirs_;
  std::unique_ptr<NetworkThread> thread_;
};

}  // namespace gradwire::net
