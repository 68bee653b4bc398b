#include "gradwire/mpi/driver.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <future>
#include <utility>

#include <fmt/format.h>
#include <sched.h>

#include "gradwire/base/log.h"

namespace gradwire::mpi {
namespace {

/// Between two looks of the progress thread. A link of 10 Gb/s moves 60 kB in it, much less than a
/// socket's buffer has.
constexpr Duration kLook = std::chrono::microseconds(50);

/// For this time after a wait, or after an operation whose caller is expected to wait, the progress
/// thread leaves the driving to callers.
constexpr Duration kStayAway = std::chrono::milliseconds(4);

/// After this time without operations the progress thread sleeps until it is woken, which costs the
/// waking thread some microseconds.
constexpr Duration kIdle = std::chrono::milliseconds(50);

/// Before the job ends: MPICH's mpirun drops the output of ranks that it has not read by then.
constexpr Duration kReading = std::chrono::milliseconds(100);

/// Tries between two reads of the clock.
constexpr int kTriesPerClockRead = 64;

/// Tries before the processor is left to others between two tries.
constexpr int kTriesBeforeYield = 50;

}  // namespace

Driver::Driver(const gradwire_mpi& mpi, Rank rank, std::shared_ptr<const Clock> clock)
    : mpi_(mpi), rank_(rank), clock_(std::move(clock)), thread_([this] { run(); }) {}

void Driver::stop() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
    thread_wakes_.notify_all();
  }
  thread_.join();
}

Error Driver::error_of(int error, const std::string& what) const {
  std::array<char, 256> text{};
  mpi_.error_text(error, text.data(), static_cast<int>(text.size()));
  return {ErrorKind::system, fmt::format("{}: {}: {}", mpi_.name, what, text.data())};
}

void Driver::check(int error, const std::string& what) const {
  if (error != 0) throw Exception(error_of(error, what));
}

void Driver::fail_job(const std::string& reason) {
  log_error("rank {}: {}; {} ends the job", rank_, reason, mpi_.name);
  std::promise<void>().get_future().wait_for(kReading);
  mpi_.abort(EXIT_FAILURE);
  std::_Exit(EXIT_FAILURE);
}

// --- callers ---

void Driver::post(std::vector<std::unique_ptr<Task>> tasks) {
  const Time posted = now();
  bool drives = false;
  {
    const std::lock_guard lock(mutex_);
    // The caller of a single blocking call waits at once, and needs no thread.
    const bool is_left = tasks.size() == 1 && tasks.front()->blocks && posted_.empty();
    in_flight_ += static_cast<int>(tasks.size());
    for (auto& task : tasks) {
      task->deadline = after(posted, task->timeout);
      posted_.push_back(std::move(task));
    }
    is_needed_ = is_needed_ || !is_left;
    drives = !is_driven_ && claims_ == 0 && !posted_.front()->blocks;
    is_driven_ = is_driven_ || drives;
    if (is_needed_ || is_sleeping_) thread_wakes_.notify_all();
  }
  if (!drives) return;
  start_posted(/*may_block=*/false);
  const std::lock_guard lock(mutex_);
  is_driven_ = false;
  if (waiting_ > 0) waiters_.notify_all();
}

void Driver::wait(const std::function<bool()>& done, Time until) {
  std::unique_lock lock(mutex_);
  ++waiting_;
  while (!done() && now() < until) {
    if (is_driven_ || claims_ > 0) {
      check_blocking();
      waiters_.wait_until(lock, std::min(until, after(now(), std::chrono::seconds(1))));
      continue;
    }
    is_driven_ = true;
    lock.unlock();
    drive(done, until);
    lock.lock();
    is_driven_ = false;
    if (waiting_ > 1) waiters_.notify_all();
  }
  --waiting_;
  last_wait_ = now();
}

void Driver::drive_in_background(int change) {
  const std::lock_guard lock(mutex_);
  background_ += change;
  if (change > 0) thread_wakes_.notify_all();
}

void Driver::exclusively(const std::function<void()>& function) {
  std::unique_lock lock(mutex_);
  ++waiting_;
  ++claims_;
  waiters_.wait(lock, [this] { return !is_driven_; });
  --claims_;
  is_driven_ = true;
  lock.unlock();
  start_posted(/*may_block=*/false);  // Other ranks may need them before they do the same.
  std::exception_ptr failed;
  try {
    function();
  } catch (...) {
    failed = std::current_exception();
  }
  lock.lock();
  is_driven_ = false;
  --waiting_;
  if (waiting_ > 0) waiters_.notify_all();
  if (failed) std::rethrow_exception(failed);
}

// --- the thread that drives ---

void Driver::drive(const std::function<bool()>& done, Time until) {
  for (int tries = 0; !done() && claims_ == 0;) {
    if (advance(/*may_block=*/true)) {
      tries = 0;
      continue;
    }
    if (++tries >= kTriesBeforeYield) ::sched_yield();
    if (tries % kTriesPerClockRead != 0) continue;
    check_deadlines();
    if (now() >= until) return;
  }
}

/// Returns true if an operation has begun or ended.
bool Driver::advance(bool may_block) {
  const bool has_started = start_posted(may_block);
  return test_running() || has_started;
}

bool Driver::start_posted(bool may_block) {
  bool has_started = false;
  while (auto task = take_posted(may_block)) {
    has_started = true;
    if (task->blocks) {
      run_blocking(std::move(task));
    } else if (const int error = mpi_.start(&task->call, &task->request); error != 0) {
      end(std::move(task), error, -1);
    } else {
      running_.push_back(std::move(task));
    }
  }
  return has_started;
}

std::unique_ptr<Task> Driver::take_posted(bool may_block) {
  const std::lock_guard lock(mutex_);
  if (posted_.empty() || (posted_.front()->blocks && !may_block)) return nullptr;
  auto task = std::move(posted_.front());
  posted_.pop_front();
  return task;
}

void Driver::run_blocking(std::unique_ptr<Task> task) {
  blocking_what_ = task->describe();
  blocking_until_ = task->deadline;
  const int error = mpi_.run(&task->call);
  blocking_until_ = Time::max();
  end(std::move(task), error, -1);
}

bool Driver::test_running() {
  bool has_ended = false;
  for (std::size_t i = 0; i < running_.size();) {
    int is_done = 0, source = -1;
    Task& task = *running_[i];
    const int error = mpi_.test(&task.call, &task.request, &is_done, &source);
    if (error == 0 && is_done == 0) {
      ++i;
      continue;
    }
    auto ended = std::move(running_[i]);
    running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(i));
    end(std::move(ended), error, source);
    has_ended = true;
  }
  return has_ended;
}

void Driver::end(std::unique_ptr<Task> task, int error, Rank source) {
  if (error != 0) fail_job(error_of(error, task->describe()).message);
  --in_flight_;
  task->ended(source);
  const std::lock_guard lock(mutex_);
  if (waiting_ > 0) waiters_.notify_all();
}

void Driver::check_deadlines() {
  const Time at = now();
  for (const auto& task : running_) {
    if (at < task->deadline) continue;
    fail_job(fmt::format("{} took longer than its timeout of {:.1f} s", task->describe(),
                         std::chrono::duration<double>(task->timeout).count()));
  }
}

/// Called by a thread other than the one that drives.
void Driver::check_blocking() {
  if (now() >= blocking_until_.load())
    fail_job(fmt::format("{} took longer than its timeout", blocking_what_));
}

// --- the progress thread ---

/// Returns true if no other thread drives, and operations in flight need one that does.
bool Driver::is_wanted() const {
  if (in_flight_ == 0 || waiting_ > 0 || is_driven_) return false;
  return is_needed_ || background_ > 0 || now() >= after(last_wait_, kStayAway);
}

void Driver::run() {
  std::unique_lock lock(mutex_);
  Time busy = now();
  while (!is_stopping_) {
    if (in_flight_ > 0) {
      busy = now();
    } else {
      is_needed_ = false;
    }
    if (now() >= after(busy, kIdle)) {
      is_sleeping_ = true;
      thread_wakes_.wait(lock, [this] { return is_stopping_ || in_flight_ > 0; });
      is_sleeping_ = false;
      continue;
    }
    check_blocking();
    if (!is_wanted()) {
      thread_wakes_.wait_for(lock, kStayAway);
      continue;
    }
    is_driven_ = true;
    lock.unlock();
    const bool has_advanced = advance(/*may_block=*/true);
    check_deadlines();
    lock.lock();
    is_driven_ = false;
    if (waiting_ > 0) waiters_.notify_all();
    if (!has_advanced) thread_wakes_.wait_for(lock, kLook);
  }
}

}  // namespace gradwire::mpi
