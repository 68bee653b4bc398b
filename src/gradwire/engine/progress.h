#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "gradwire/base/clock.h"
#include "gradwire/base/fork.h"
#include "gradwire/engine/engine.h"
#include "gradwire/engine/executor.h"
#include "gradwire/net/transport.h"

namespace gradwire::engine {

/// Drives one executor over real streams. A progress thread drives it when no thread waits. A
/// thread that waits for an operation drives it instead in the meantime: otherwise each operation
/// would cost two context switches, one to wake the waiter and one back.
///
/// The executor and the transport's streams are guarded by `engine_mutex_`. It is never held while
/// waiting for the network, and no caller's code runs under it (locked()).
///
/// At a hand-over, both threads may sleep in the transport's poll for a moment, and an event that
/// wakes one is lost to the other. So the thread that leaves the poll wakes the one that stays: the
/// latter's operation may be complete, or its poll timeout may be too late.
///
/// In a forked child only close() has an effect: it returns.
class Progress final : public Engine, public std::enable_shared_from_this<Progress> {
 public:
  /// `cores_to_spare`: every rank of the job has a core of this machine to itself, so a waiting
  /// thread may busy-wait without slowing down the others.
  Progress(std::unique_ptr<net::PollingTransport> transport, Rank rank, int ranks,
           const ExecutorOptions& options, std::shared_ptr<const Clock> clock,
           bool cores_to_spare = false);

  ~Progress() override;

  void post(OperationRequest request) override;
  void post(std::vector<OperationRequest> requests) override;
  Time now() const override { return clock_->now(); }
  void wait(const PostedWork& state, Time until) override;
  void drive_in_background(int change) override;
  void abort(Error error) override;
  void abort_with(Rank peer, Error error) override;
  /// Waits briefly until the kernel has taken the goodbye frames.
  void close(Close how, const std::string& failure) override;
  Executor::Traffic traffic() override;

 private:
  enum class Poller : std::uint8_t { thread, waiter };

  template <class Requests>
  void hand_over(Requests requests);
  void wake_if_late(Time timer);
  void wake_all();
  void run();
  void back_off(std::unique_lock<std::mutex>& roles, Duration delay);
  template <class Done>
  void wait_for(const Done& done, Time until);
  template <class Done>
  Time drive(const Done& done, Time begin, Time until);
  void finish_needed_operations();
  void refuse_in_child() const;
  std::unique_lock<std::mutex> lock_engine();
  template <class Action>
  void locked(const Action& action);
  bool try_read(Time now);
  bool poll_once(Poller poller, Time latest, std::vector<net::ReadyEvent>& events);
  void handle(const std::vector<net::ReadyEvent>& events);
  void notify_waiters();
  void drain(Time until);

  ForkGuard fork_;
  std::shared_ptr<const Clock> clock_;
  Rank rank_;
  bool cores_to_spare_;
  std::unique_ptr<net::PollingTransport> transport_;

  std::mutex turn_mutex_;  ///< Held while waiting for `engine_mutex_` (lock_engine()).
  std::mutex engine_mutex_;
  Executor executor_;

  std::mutex roles_mutex_;
  std::condition_variable waiters_;  ///< Waiting threads that do not drive.
  std::condition_variable thread_;   ///< The progress thread while a waiter drives.
  int waiting_ = 0;                  ///< Threads in wait().
  std::uint64_t waits_ = 0;          ///< Number of wait() calls so far.
  int background_ = 0;               ///< Operations for which no thread will wait.
  bool waiter_drives_ = false;       ///< A waiting thread drives.
  bool thread_polls_ = false;        ///< The progress thread drives.
  bool parked_ = false;  ///< The progress thread sleeps until a wait ends, however short.
  Time sleep_until_{};   ///< Busy-waiting is not worthwhile before this time.
  Time last_wait_{};     ///< When a thread last left wait().
  std::atomic<bool> closing_ = false;    ///< close() has been called.
  std::atomic<bool> finishing_ = false;  ///< close() waits for operations in flight.
  std::atomic<bool> stopping_ = false;   ///< The progress thread must exit.
  /// Time until which each Poller may sleep; Time{}: not sleeping. Set under `engine_mutex_`.
  std::array<std::atomic<Time>, 2> poll_until_{Time{}, Time{}};

  std::thread progress_thread_;
};

}  // namespace gradwire::engine
