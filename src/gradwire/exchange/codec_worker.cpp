#include "gradwire/exchange/codec_worker.h"

#include <utility>

namespace gradwire::exchange {

void TaskQueue::add(int priority, int stage, Task task) {
  const std::lock_guard lock(mutex_);
  if (closed_) return;
  tasks_.emplace(Key{-std::int64_t{priority}, -std::int64_t{stage}, added_++}, std::move(task));
  changed_.notify_one();
}

TaskQueue::Task TaskQueue::next() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return closed_ || !tasks_.empty(); });
  if (closed_) return {};
  return std::move(tasks_.extract(tasks_.begin()).mapped());
}

void TaskQueue::close() {
  std::map<Key, Task> forgotten;  // Destroyed after the lock is released, with whatever the tasks
                                  // own.
  const std::lock_guard lock(mutex_);
  closed_ = true;
  forgotten.swap(tasks_);
  changed_.notify_all();
}

CodecWorker::CodecWorker()
    : queue_(std::make_shared<TaskQueue>()), thread_([queue = queue_.get()] {
        while (const TaskQueue::Task task = queue->next()) task();
      }) {}

CodecWorker::~CodecWorker() {
  if (fork_.in_child()) {
    ForkGuard::leak(queue_);
    thread_.detach();
    return;
  }
  queue_->close();
  thread_.join();
}

}  // namespace gradwire::exchange
