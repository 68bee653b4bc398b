#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "gradwire/base/clock.h"
#include "gradwire/base/error.h"
#include "gradwire/base/types.h"
#include "gradwire/mpi/plugin.h"

namespace gradwire::mpi {

/// An operation as MPI sees it.
struct Task {
  gradwire_mpi_call call{};
  std::vector<int> parts;  ///< Memory of the call's counts and begins.
  /// The blocking function is called, when a thread waits for it: of two ranks through shared
  /// memory, Open MPI's takes 0.6 of the time of the other one. Ranks must choose alike.
  bool blocks = false;
  Duration timeout{};
  Time deadline{};                        ///< Set by the driver.
  std::function<std::string()> describe;  ///< "all_reduce of 1000 float32 (sum)".
  /// Called by the thread that drives, with the sender of a message.
  std::function<void(Rank source)> ended;
  gradwire_mpi_handle request = 0;  ///< The driver's.
};

/// Calls MPI, one thread at a time. A thread that waits for an operation drives them all; otherwise
/// a progress thread does, which looks for progress every 50 us: MPI moves data only while it is
/// called. Operations start in the order in which they are posted.
///
/// MPI cannot take back the memory of an operation. So an operation that fails, or that takes
/// longer than its timeout, ends the job, as fail_job() does. Thread-safe.
class Driver {
 public:
  Driver(const gradwire_mpi& mpi, Rank rank, std::shared_ptr<const Clock> clock);
  ~Driver() { stop(); }
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  /// Ends the progress thread. Not while operations are in flight. Nothing may be posted
  /// afterwards.
  void stop();

  void post(std::vector<std::unique_ptr<Task>> tasks);
  /// Returns when `done`, which `ended` of a task makes true, or at `until`.
  void wait(const std::function<bool()>& done, Time until);
  /// Changes the number of operations for which no thread will wait.
  void drive_in_background(int change);
  /// Calls `function` while no other thread calls MPI.
  void exclusively(const std::function<void()>& function);

  /// Ends all processes of the job, this one too, and says why.
  [[noreturn]] void fail_job(const std::string& reason);

  Time now() const { return clock_->now(); }
  const gradwire_mpi& mpi() const { return mpi_; }
  /// Throws Exception(system) for an error of MPI.
  void check(int error, const std::string& what) const;

 private:
  Error error_of(int error, const std::string& what) const;
  void run();
  bool is_wanted() const;
  void drive(const std::function<bool()>& done, Time until);
  bool advance(bool may_block);
  bool start_posted(bool may_block);
  std::unique_ptr<Task> take_posted(bool may_block);
  bool test_running();
  void run_blocking(std::unique_ptr<Task> task);
  void end(std::unique_ptr<Task> task, int error, Rank source);
  void check_deadlines();
  void check_blocking();

  const gradwire_mpi& mpi_;
  Rank rank_;
  std::shared_ptr<const Clock> clock_;

  mutable std::mutex mutex_;
  std::condition_variable waiters_;  ///< Threads that wait while another one drives.
  std::condition_variable thread_wakes_;
  std::deque<std::unique_ptr<Task>> posted_;  ///< Not started.
  bool is_driven_ = false;                    ///< A thread calls MPI.
  int waiting_ = 0;                           ///< Threads in wait() and exclusively().
  int background_ = 0;
  bool is_needed_ = false;    ///< The progress thread need not expect that a thread waits.
  bool is_sleeping_ = false;  ///< It waits for a notification.
  bool is_stopping_ = false;
  Time last_wait_{};
  std::atomic<int> claims_ = 0;     ///< Threads in exclusively() that wait for their turn.
  std::atomic<int> in_flight_ = 0;  ///< Posted, and not ended.
  /// When a blocking call has to be over; Time::max(): there is none.
  std::atomic<Time> blocking_until_ = Time::max();
  std::string blocking_what_;  ///< Written before `blocking_until_`.

  std::vector<std::unique_ptr<Task>> running_;  ///< Started; the driving thread's.

  std::thread thread_;
};

}  // namespace gradwire::mpi
