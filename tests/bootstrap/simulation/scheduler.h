#pragma once

#include <functional>
#include <list>
#include <memory>
#include <queue>
#include <semaphore>
#include <thread>
#include <vector>

#include "gradwire/base/clock.h"
#include "gradwire/base/random.h"

namespace gradwire::test {

/// Cooperative threads in virtual time. Exactly one runs at a time, until it blocks or ends; then a
/// random one of those that can go on runs. If none can, the time advances to the next event. The
/// order depends on the seed alone.
class Scheduler final : public Clock {
 public:
  /// A thread.
  struct Task {
    std::function<void()> run;
    std::function<bool()> ready = [] { return true; };
    Time until = Time::max();
    bool ended = false;
    std::binary_semaphore turn{0};
    std::thread thread;
  };

  explicit Scheduler(std::uint64_t seed) : random_(seed) {}
  ~Scheduler() override;

  Time now() const override { return now_; }
  Random& random() { return random_; }

  /// Calls `event` at that time, between two threads' turns.
  void at(Time time, std::function<void()> event);

  /// Starts a thread; `run` is destroyed on it. Valid until the scheduler ends.
  Task* start(std::function<void()> run);

  /// Blocks the calling thread until `ready` returns true, or until then.
  void block(std::function<bool()> ready, Time until);

  /// Runs until all threads have ended and no event is left. Returns false if threads then wait for
  /// ever, or beyond `until`; they can go on if this is called again.
  bool run(Time until);

 private:
  struct Event {
    Time at;
    std::uint64_t order = 0;
    std::function<void()> call;
    bool operator<(const Event& other) const {
      return at != other.at ? at > other.at : order > other.order;
    }
  };

  void main(Task& task);
  Task* next_task();
  bool advance();
  void pass_on(Task* next);

  Random random_;
  Time now_ = Time{} + std::chrono::hours(1);
  Time until_ = {};
  std::uint64_t order_ = 0;
  std::priority_queue<Event> events_;
  std::list<std::unique_ptr<Task>> tasks_;
  Task* running_ = nullptr;
  std::binary_semaphore idle_{0};  ///< Released when no thread can run.
};

}  // namespace gradwire::test
