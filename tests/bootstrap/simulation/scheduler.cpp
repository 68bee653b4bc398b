#include "tests/bootstrap/simulation/scheduler.h"

#include <algorithm>
#include <utility>

namespace gradwire::test {

Scheduler::~Scheduler() {
  for (const auto& task : tasks_) task->thread.join();
}

void Scheduler::at(Time time, std::function<void()> event) {
  events_.push({.at = std::max(time, now_), .order = ++order_, .call = std::move(event)});
}

Scheduler::Task* Scheduler::start(std::function<void()> run) {
  Task& task = *tasks_.emplace_back(std::make_unique<Task>());
  task.run = std::move(run);
  task.thread = std::thread([this, &task] { main(task); });
  return &task;
}

void Scheduler::main(Task& task) {
  task.turn.acquire();
  task.run();
  task.run = nullptr;
  task.ended = true;
  pass_on(next_task());
}

void Scheduler::block(std::function<bool()> ready, Time until) {
  Task& self = *running_;
  self.ready = std::move(ready);
  self.until = until;
  Task* next = next_task();
  if (next == &self) return;
  pass_on(next);
  self.turn.acquire();
}

void Scheduler::pass_on(Task* next) {
  running_ = next;
  (next == nullptr ? idle_ : next->turn).release();
}

/// Null: no thread can ever run, or not before the end.
Scheduler::Task* Scheduler::next_task() {
  do {
    std::vector<Task*> able;
    for (const auto& task : tasks_) {
      if (!task->ended && (task->until <= now_ || task->ready())) able.push_back(task.get());
    }
    if (!able.empty()) return running_ = able[random_.below(able.size())];
  } while (advance());
  return nullptr;
}

/// Advances the time to the next event or end of a wait.
bool Scheduler::advance() {
  Time next = events_.empty() ? Time::max() : events_.top().at;
  for (const auto& task : tasks_) {
    if (!task->ended) next = std::min(next, task->until);
  }
  if (next == Time::max() || next > until_) return false;
  now_ = std::max(now_, next);
  while (!events_.empty() && events_.top().at <= now_) {
    const std::function<void()> call = events_.top().call;
    events_.pop();
    call();
  }
  return true;
}

bool Scheduler::run(Time until) {
  until_ = until;
  if (Task* first = next_task()) {
    pass_on(first);
    idle_.acquire();
  }
  return std::ranges::all_of(tasks_, [](const auto& task) { return task->ended; });
}

}  // namespace gradwire::test
