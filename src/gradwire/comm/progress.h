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
#include "gradwire/comm/executor.h"
#include "gradwire/comm/work_state.h"
#include "gradwire/net/transport.h"

namespace gradwire {

/// Drives one executor over real streams. A thread of its own does it whenever nobody waits; a
/// thread that waits for an operation does it itself meanwhile, because being woken by the thread
/// that read the last byte would cost a context switch per operation, and that thread another one.
///
/// Who may touch the executor and the transport's streams: whoever holds `engine_mutex_`. It is
/// never held while waiting for the network, and no caller's code runs under it (locked()).
///
/// While one takes over from the other, both may sleep in the transport's poll for a moment, and
/// what wakes one of them is lost to the other. So whoever leaves it wakes the one who stays: what
/// that one waits for may be over, and the time until which it sleeps too late.
///
/// In a child that was forked from the rank's process only close() does anything: it returns.
class Progress final : public Engine, public std::enable_shared_from_this<Progress> {
 public:
  /// `cores_to_spare`: every rank of the job has a processor of this machine to itself, so that one
  /// that waits takes nothing from the others by asking without a break.
  Progress(std::unique_ptr<PollingTransport> transport, Rank rank, int ranks,
           const ExecutorOptions& options, const Clock& clock, bool cores_to_spare = false);

  ~Progress() override;

  void post(OperationRequest request) override;
  void post(std::vector<OperationRequest> requests) override;
  void wait(const WorkState& state, Time until) override;
  void abort(Error error) override;
  /// Waits briefly until the goodbye is on its way.
  void close(Close how) override;
  Executor::Traffic traffic() override;

 private:
  enum class Poller : std::uint8_t { thread, waiter };

  template <class Requests>
  void hand_over(Requests requests);
  void wake_if_late(Time timer);
  void wake_all();
  void run();
  void stay_away(std::unique_lock<std::mutex>& roles, Duration stay);
  template <class Done>
  void wait_for(const Done& done, Time until);
  template <class Done>
  Time drive(const Done& done, Time begin, Time until);
  void finish_what_is_needed();
  void refuse_in_child() const;
  std::unique_lock<std::mutex> lock_engine();
  template <class Action>
  void locked(const Action& action);
  bool ask_once(Time now);
  bool poll_once(Poller poller, Time latest, std::vector<ReadyEvent>& events);
  void handle(const std::vector<ReadyEvent>& events);
  void tell_waiters();
  void drain(Time until);

  ForkGuard fork_;
  const Clock& clock_;
  Rank rank_;
  bool cores_to_spare_;
  std::unique_ptr<PollingTransport> transport_;

  std::mutex turn_mutex_;  ///< Held while waiting for `engine_mutex_` (lock_engine()).
  std::mutex engine_mutex_;
  Executor executor_;

  std::mutex roles_mutex_;
  std::condition_variable waiters_;      ///< Waiting threads that do not drive.
  std::condition_variable thread_;       ///< The progress thread while somebody else drives.
  int waiting_ = 0;                      ///< Threads in wait().
  std::uint64_t waits_ = 0;              ///< How often a thread has begun to wait.
  bool driven_ = false;                  ///< One of them drives.
  bool thread_polls_ = false;            ///< The progress thread drives.
  bool away_ = false;                    ///< It sleeps until a wait ends, however short that was.
  Time sleep_until_{};                   ///< Asking again and again is no good until then.
  Time last_wait_{};                     ///< When a thread last left wait().
  std::atomic<bool> closing_ = false;    ///< close() has been called.
  std::atomic<bool> finishing_ = false;  ///< close() waits for what is in flight.
  std::atomic<bool> stopping_ = false;   ///< The progress thread ends.
  /// Until when each Poller may sleep; Time{}: it does not. Set under `engine_mutex_`.
  std::array<std::atomic<Time>, 2> poll_until_{Time{}, Time{}};

  std::thread progress_thread_;
};

}  // namespace gradwire
