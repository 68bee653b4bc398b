#include <algorithm>
#include <exception>

#include <sched.h>

#include "gradwire/base/log.h"
#include "gradwire/comm/devices/device_engine.h"
#include "gradwire/comm/devices/device_hub.h"

// The work of the threads that post and wait: slices, and operations between processes.
namespace gradwire {
namespace {

/// A wake-up takes some 30 us: a thread that waits spins first, for about this time.
constexpr Duration kDeviceSpin = std::chrono::microseconds(200);
constexpr int kTriesPerLock = 16;

}  // namespace

/// Runs the next slice of the operation with the highest priority.
void DeviceHub::run_slice(Lock& lock) {
  const auto first = std::ranges::max_element(
      ready_, {}, [](const MeetingPointer& meeting) { return meeting->any().priority; });
  const MeetingPointer meeting = *first;
  const DeviceStep& step = meeting->steps[meeting->step];
  const std::size_t slice = meeting->next++;
  ++meeting->running;
  if (meeting->next == step.slices) ready_.erase(first);
  has_ready_ = !ready_.empty();
  lock.unlock();
  step.run(slice);
  lock.lock();
  --meeting->running;
  if (error_) {
    end_failed(meeting);
  } else if (meeting->running == 0 && meeting->next == step.slices) {
    ++meeting->step;
    advance(meeting);
  }
}

/// Further slices are left to the threads that wait.
void DeviceHub::run_ready(Lock& lock) {
  while (!ready_.empty()) {
    const MeetingPointer& first = ready_.front();
    if (waiting_ > 0 && first->steps[first->step].slices > 1) return;
    run_slice(lock);
    flush(lock);
  }
}

/// Does what must not be done under the lock: tells the other processes of an error, begins the
/// operations between processes, and publishes results.
void DeviceHub::flush(Lock& lock) {
  for (;;) {
    if (std::exchange(abort_between_, false) && between_) {
      const auto between = between_;
      lock.unlock();
      between->abort(error_->message);
      lock.lock();
      continue;
    }
    if (!posting_ && !to_post_.empty()) {
      begin_between(lock);
      continue;
    }
    DeviceEngine::Ended ended;
    for (DeviceEngine* engine : engines_) {
      if (engine == nullptr) continue;
      for (auto& work : engine->take_ended()) ended.push_back(std::move(work));
    }
    if (ended.empty()) return;
    lock.unlock();
    try {
      DeviceEngine::publish(ended);
    } catch (const std::exception& e) {
      log_error("a callback of an operation failed: {}", e.what());
    }
    ended.clear();
    lock.lock();
    waiters_.notify_all();
  }
}

/// One thread at a time, so that they begin in order. A callback may get here again: it leaves what
/// it adds to the caller.
void DeviceHub::begin_between(Lock& lock) {
  posting_ = true;
  while (!to_post_.empty()) {
    const MeetingPointer meeting = to_post_.front();
    to_post_.pop_front();
    const bool is_collective = meeting->lane >= 0;
    const int lane =
        is_collective ? groups_[meeting->group]->lanes[meeting->lane].between : meeting->lane;
    const std::shared_ptr<Communicator> on =
        is_collective ? between_ : pairs_[static_cast<std::size_t>(meeting->pair)];
    const DeviceStep& step = meeting->steps[meeting->step];
    lock.unlock();
    try {
      const Work work = step.between(*on, lane);
      work.on_done([self = shared_from_this(), meeting](const Work& done) {
        self->ended_between(meeting, done);
      });
      work.drive_in_background();
      lock.lock();
    } catch (const Exception& e) {
      lock.lock();
      meeting->is_between = false;
      fail({e.kind(), e.what()});
      end_failed(meeting);
    }
  }
  posting_ = false;
}

void DeviceHub::ended_between(const MeetingPointer& meeting, const Work& work) {
  Lock lock(mutex_);
  meeting->is_between = false;
  if (const auto error = work.error()) {
    if (!error_) {
      fail(*error);
      abort_between_ = false;  // It has failed.
    }
    end_failed(meeting);
  } else if (error_) {
    end_failed(meeting);
  } else {
    ++meeting->step;
    advance(meeting);
  }
  flush(lock);
  run_ready(lock);
}

void DeviceHub::wait(const engine::PostedWork& work, Time until) {
  Lock lock(mutex_);
  wait_for(
      lock, [&work] { return work.is_done(); }, until);
}

/// A thread leaves when there is nothing to run, as those that post rely on it.
void DeviceHub::wait_for(Lock& lock, const std::function<bool()>& done, Time until) {
  ++waiting_;
  Time time = now();
  const Time spin_until = after(time, kDeviceSpin);
  for (;; time = now()) {
    while (!ready_.empty()) {
      run_slice(lock);
      flush(lock);
    }
    if (done() || time >= until) break;
    if (fail_overdue(time)) {
      flush(lock);
    } else if (time < spin_until) {
      lock.unlock();
      for (int i = 0; i < kTriesPerLock && !has_ready_; ++i) sched_yield();
      lock.lock();
    } else {
      gradwire::wait_until(waiters_, lock, std::min(until, next_deadline()));
    }
  }
  --waiting_;
}

}  // namespace gradwire
