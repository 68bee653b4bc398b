#include "gradwire/torch/completion_threads.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace gradwire {

struct CompletionThreads::Queue {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> tasks;
  std::vector<std::thread> threads;
  std::size_t max_threads = 0;
  std::size_t idle = 0;
  bool closed = false;

  void work();
};

void CompletionThreads::Queue::work() {
  std::unique_lock lock(mutex);
  while (true) {
    ++idle;
    changed.wait(lock, [this] { return closed || !tasks.empty(); });
    --idle;
    if (tasks.empty()) return;
    {
      const auto task = std::move(tasks.front());
      tasks.pop_front();
      lock.unlock();
      task();
    }
    lock.lock();
  }
}

CompletionThreads::CompletionThreads(std::size_t max_threads) : queue_(std::make_shared<Queue>()) {
  queue_->max_threads = max_threads;
}

void CompletionThreads::run(std::function<void()> task) {
  {
    const std::lock_guard lock(queue_->mutex);
    if (!queue_->closed) {
      queue_->tasks.push_back(std::move(task));
      if (queue_->tasks.size() > queue_->idle && queue_->threads.size() < queue_->max_threads) {
        queue_->threads.emplace_back([queue = queue_] { queue->work(); });
      }
      queue_->changed.notify_one();
      return;
    }
  }
  task();
}

void CompletionThreads::close() {
  if (fork_.in_child()) return ForkGuard::leak(queue_);
  std::vector<std::thread> threads;
  {
    const std::lock_guard lock(queue_->mutex);
    queue_->closed = true;
    threads.swap(queue_->threads);
    queue_->changed.notify_all();
  }
  for (std::thread& thread : threads) {
    if (thread.get_id() == std::this_thread::get_id()) {
      thread.detach();
    } else {
      thread.join();
    }
  }
}

}  // namespace gradwire
