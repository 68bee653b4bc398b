#include "gradwire/engine/progress.h"

#include <algorithm>
#include <exception>
#include <utility>

#include <fmt/format.h>
#include <sched.h>

#include "gradwire/base/refuse.h"

namespace gradwire::engine {
namespace {

/// Busy-wait time of a waiting thread before it sleeps. Sleeping and waking cost about 30 us, which
/// matters for small operations; yielding between two tries keeps busy-waiting cheap. Counted from
/// the beginning of the wait, not from the last event. Longer operations are limited by their
/// bytes: busy-waiting would only take the processor from the threads that move them (a third of
/// it, measured with four ranks on two cores).
constexpr Duration kSpin = std::chrono::microseconds(500);

/// Tries before the first yield after an event, if every rank has its own core: a yield takes
/// longer than a transfer through shared memory. The limit is not much above that time, because
/// another rank may have been scheduled on the same core after all.
constexpr int kTriesBeforeYield = 30;

/// Tries between two reads of the clock.
constexpr int kTriesPerClockRead = 16;

/// A yield that takes longer than this gave the processor to a computing thread, not to a waiting
/// one that yields back. Sleeping is then quicker, because a woken thread is scheduled first.
constexpr Duration kLongYield = std::chrono::microseconds(300);

/// Time for which this is assumed to last.
constexpr Duration kSleepInstead = std::chrono::milliseconds(20);

/// Number of tries without an event after which the kernel is polled for everything, including ends
/// of streams and room for pending writes.
constexpr int kTriesPerPoll = 64;

/// Time for which the progress thread stays away after a wait: the next wait usually follows soon,
/// and if both polled, one of them would be woken for nothing.
constexpr Duration kBackOff = std::chrono::milliseconds(1);

/// While waiters drive, the progress thread checks on them at growing intervals, up to this one. It
/// is also the maximum delay of an operation that is posted without a wait after many short waits,
/// unless Work::drive_in_background() announces that none will follow.
constexpr Duration kMaxBackOff = std::chrono::milliseconds(4);

/// Maximum time for which close() waits until the kernel has taken the last frames.
constexpr Duration kDrain = std::chrono::seconds(1);

/// Hints to the processor that this is a spin-wait loop.
void pause_processor() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

bool sends_to_self(const OperationRequest& request) {
  return request.sends_to_self;
}

bool sends_to_self(const std::vector<OperationRequest>& requests) {
  return std::ranges::any_of(requests, &OperationRequest::sends_to_self);
}

}  // namespace

Progress::Progress(std::unique_ptr<net::PollingTransport> transport, Rank rank, int ranks,
                   const ExecutorOptions& options, std::shared_ptr<const Clock> clock,
                   bool cores_to_spare)
    : clock_(std::move(clock)),
      rank_(rank),
      cores_to_spare_(cores_to_spare),
      transport_(std::move(transport)),
      executor_(rank, ranks, options, *transport_, clock_->now()),
      progress_thread_([this] { run(); }) {}

Progress::~Progress() {
  close(Close::at_once, "");  // No effect if the communicator has closed it.
}

/// In a forked child, the threads do not exist, the locks may be held by them, and the connections
/// belong to the parent.
void Progress::refuse_in_child() const {
  if (!fork_.in_child()) return;
  refuse(
      "this process was forked from rank {} and cannot use its "
      "communicator: create a communicator in each process",
      rank_);
}

/// Locks the engine in the order in which threads ask for it. A mutex alone is not fair: the
/// driver, which relocks it immediately, would starve a thread that posts.
std::unique_lock<std::mutex> Progress::lock_engine() {
  const std::lock_guard turn(turn_mutex_);
  return std::unique_lock(engine_mutex_);
}

/// Runs `action` with the engine locked. Completes the operations that it ended after the unlock,
/// so that no callback runs and no caller's memory is freed under the lock. Wakes their waiters: an
/// action of any thread may end any operation, also post(), which writes what other operations have
/// left to write.
template <class Action>
void Progress::locked(const Action& action) {
  Ended ended;
  {
    const auto lock = lock_engine();
    action();
    if (finishing_ && !executor_.is_needed()) finishing_ = false;
    ended = take_ended();
  }
  if (ended.empty()) return;
  std::exception_ptr failed;
  try {
    publish(ended);
  } catch (...) {
    failed = std::current_exception();
  }
  notify_waiters();
  if (failed) std::rethrow_exception(failed);
}

/// With Close::completing, bounded by the timeouts of the operations.
void Progress::close(Close how, const std::string& failure) {
  if (closing_.exchange(true)) return;
  if (fork_.in_child()) return ForkGuard::leak(shared_from_this());
  if (how == Close::completing) finish_needed_operations();
  locked([&] {
    const Error closed{ErrorKind::aborted,
                       "the communicator was closed while the operation was in flight"};
    const Error failed{ErrorKind::aborted, fmt::format("rank {} left the job {}", rank_, failure)};
    if (executor_.is_needed()) {
      executor_.abort(failure.empty() ? closed : failed);
    } else {
      executor_.send_goodbye(closed, failure);
    }
  });
  // Nothing is in flight, so no waiter remains in the poll that could consume this wake-up.
  stopping_ = true;
  wake_all();
  {
    const std::lock_guard lock(roles_mutex_);
    thread_.notify_all();
  }
  progress_thread_.join();
  drain(clock_->now() + kDrain);
}

void Progress::finish_needed_operations() {
  {
    const auto lock = lock_engine();
    finishing_ = executor_.is_needed();
  }
  wait_for([this] { return !finishing_.load(std::memory_order_acquire); }, Time::max());
}

void Progress::drain(Time until) {
  std::vector<net::ReadyEvent> events;
  while (clock_->now() < until) {
    {
      const auto lock = lock_engine();
      if (executor_.flushed()) return;
    }
    poll_once(Poller::waiter, until, events);
  }
}

template <class Requests>
void Progress::hand_over(Requests requests) {
  refuse_in_child();
  Time timer;
  bool failed = false;
  const bool to_self = sends_to_self(requests);
  locked([&] {
    const int failures = executor_.failures();
    executor_.post(std::move(requests), clock_->now());
    timer = executor_.next_timer();
    failed = executor_.error().has_value() || executor_.failures() != failures;
  });
  if (failed || to_self) {
    wake_all();  // The operations that ended have no events that would wake a poller.
  } else {
    wake_if_late(timer);
  }
}

/// Wakes the pollers unless one of them wakes up before `timer` anyway.
void Progress::wake_if_late(Time timer) {
  bool late = false;
  for (const auto& each : poll_until_) {
    const Time until = each.load();
    if (until == Time{}) continue;
    if (until <= timer) return;
    late = true;
  }
  if (late) transport_->wake();
}

/// Wakes all threads after all operations have ended.
void Progress::wake_all() {
  notify_waiters();
  transport_->wake();
}

void Progress::post(OperationRequest request) {
  hand_over(std::move(request));
}

void Progress::post(std::vector<OperationRequest> requests) {
  hand_over(std::move(requests));
}

void Progress::abort(Error error) {
  refuse_in_child();
  locked([&] { executor_.abort(std::move(error)); });
  wake_all();
}

void Progress::abort_with(Rank peer, Error error) {
  refuse_in_child();
  locked([&] { executor_.abort_with(peer, error); });
  wake_all();
}

Executor::Traffic Progress::traffic() {
  refuse_in_child();
  const auto lock = lock_engine();
  return executor_.traffic();
}

/// Polls once, until `latest` at most, and handles the events. Returns true if there were any.
bool Progress::poll_once(Poller poller, Time latest, std::vector<net::ReadyEvent>& events) {
  const Time now = clock_->now();
  auto& poll_until = poll_until_[static_cast<std::size_t>(poller)];
  Time timer;
  Time until;
  {
    const auto lock = lock_engine();
    timer = executor_.next_timer();
    until = std::min(timer, latest);
    if (until > now) {
      executor_.prepare_to_sleep();
      poll_until = until;
    }
  }
  transport_->poll(std::max(Duration::zero(), until - now), events);
  poll_until = Time{};
  if (events.empty() && now < timer && until <= now) return false;
  handle(events);
  return !events.empty();
}

void Progress::handle(const std::vector<net::ReadyEvent>& events) {
  const Time now = clock_->now();
  locked([&] {
    for (const net::ReadyEvent& event : events) {
      if (event.writable) executor_.on_writable(event.stream(), now);
      if (event.readable) executor_.on_readable(event.stream(), now);
    }
    if (now >= executor_.next_timer()) executor_.on_timer(now);
  });
}

/// Reads the awaited streams once, without asking the kernel which streams are ready. Returns true
/// if anything was received.
bool Progress::try_read(Time now) {
  bool heard = false;
  locked([&] {
    heard = executor_.read_awaited(now);
    if (now >= executor_.next_timer()) executor_.on_timer(now);
  });
  return heard;
}

/// Wakes the waiting threads after an operation has ended, or with all of them.
void Progress::notify_waiters() {
  const std::lock_guard lock(roles_mutex_);
  // The driving waiter checks its own operation.
  if (waiting_ > (waiter_drives_ ? 1 : 0)) waiters_.notify_all();
}

void Progress::wait(const PostedWork& state, Time until) {
  refuse_in_child();
  wait_for([&state] { return state.is_done(); }, until);
}

void Progress::drive_in_background(int change) {
  const std::lock_guard lock(roles_mutex_);
  background_ += change;
  if (change > 0 && waiting_ == 0 && !thread_polls_) thread_.notify_all();
}

template <class Done>
void Progress::wait_for(const Done& done, Time until) {
  std::unique_lock lock(roles_mutex_);
  const Time begin = clock_->now();
  Time now = begin;
  ++waiting_;
  ++waits_;
  if (thread_polls_) transport_->wake();
  while (!done() && now < until) {
    if (waiter_drives_) {
      // Until the operation is done, or the driving waiter stops.
      if (until == Time::max())
        waiters_.wait(lock);
      else
        waiters_.wait_until(lock, until);
      now = clock_->now();
      continue;
    }
    waiter_drives_ = true;
    lock.unlock();
    const auto stop_driving = [&] {
      lock.lock();
      waiter_drives_ = false;
      if (waiting_ > 1) waiters_.notify_all();
    };
    try {
      now = drive(done, now, until);
    } catch (...) {  // An exception of a callback goes to this caller; the others must not hang.
      stop_driving();
      --waiting_;
      thread_.notify_all();
      throw;
    }
    stop_driving();
  }
  --waiting_;
  last_wait_ = now;
  if (thread_polls_ && waiting_ == 0) transport_->wake();
  // Not after short waits, which it would lengthen; but always if the thread sleeps until a wait
  // ends, or other operations have no waiter.
  if (parked_ || background_ > 0 || now - begin >= kMaxBackOff) thread_.notify_all();
}

/// Drives until done() holds or `until` passes. Returns the approximate time.
template <class Done>
Time Progress::drive(const Done& done, Time begin, Time until) {
  std::vector<net::ReadyEvent> events;
  Time now = begin;
  int tries = 0;
  int idle_tries = 0;  ///< Tries since the last event.
  while (!done() && now < until) {
    if (now >= begin + kSpin || now < sleep_until_) {
      poll_once(Poller::waiter, until, events);
      now = clock_->now();
      continue;
    }
    const bool yields = !cores_to_spare_ || idle_tries >= kTriesBeforeYield;
    // Reading the clock takes as long as checking shared memory.
    if (++tries % kTriesPerClockRead == 0) now = clock_->now();
    ++idle_tries;
    if (idle_tries % kTriesPerPoll == 0 ? poll_once(Poller::waiter, now, events) : try_read(now)) {
      idle_tries = 0;
    } else if (yields) {
      sched_yield();
      const Time back = clock_->now();
      if (back - now > kLongYield) sleep_until_ = back + kSleepInstead;
      now = back;
    } else {
      pause_processor();
    }
  }
  return now;
}

/// Lets waiters drive for about `delay`; after the longest delay, for as long as one single wait
/// lasts.
void Progress::back_off(std::unique_lock<std::mutex>& roles, Duration delay) {
  const std::uint64_t before = waits_;
  thread_.wait_for(roles, delay);
  const bool same_wait = waiting_ > 0 && waits_ == before;
  if (delay != kMaxBackOff || !same_wait || stopping_) return;
  parked_ = true;
  thread_.wait(roles);
  parked_ = false;
}

void Progress::run() {
  std::vector<net::ReadyEvent> events;
  Duration delay = kBackOff;
  std::unique_lock lock(roles_mutex_);
  while (!stopping_) {
    if (waiting_ > 0 || (background_ == 0 && clock_->now() - last_wait_ < kBackOff)) {
      back_off(lock, delay);
      delay = std::min(2 * delay, kMaxBackOff);
      continue;
    }
    delay = kBackOff;
    thread_polls_ = true;
    lock.unlock();
    poll_once(Poller::thread, Time::max(), events);
    lock.lock();
    thread_polls_ = false;
    if (waiter_drives_) transport_->wake();
  }
}

}  // namespace gradwire::engine
