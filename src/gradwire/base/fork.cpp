#include "gradwire/base/fork.h"

#include <algorithm>
#include <atomic>
#include <mutex>

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

namespace gradwire {
namespace {

/// fork() handlers are registered for the whole process, so their data is global.
struct ForkHandlers {
  ForkHandlers() { ::pthread_atfork(&lock, &unlock, &in_child); }

  static void lock();
  static void unlock();
  static void in_child();

  std::mutex mutex;  ///< Held during a fork, so that the child sees consistent lists.
  std::vector<const std::vector<int>*> descriptors;
  std::atomic<unsigned> count = 0;
};

ForkHandlers& handlers() {
  // Never destroyed: a fork may happen after static objects are destroyed.
  static ForkHandlers& all = *std::make_unique<ForkHandlers>().release();
  return all;
}

void ForkHandlers::lock() {
  handlers().mutex.lock();
}

void ForkHandlers::unlock() {
  handlers().mutex.unlock();
}

/// Calls only functions that are safe after a fork of a multithreaded process.
void ForkHandlers::in_child() {
  ForkHandlers& all = handlers();
  all.count.fetch_add(1, std::memory_order_relaxed);
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  for (const std::vector<int>* each : all.descriptors) {
    for (const int descriptor : *each) {
      if (null < 0 || ::dup3(null, descriptor, O_CLOEXEC) < 0) ::close(descriptor);
    }
  }
  if (null >= 0) ::close(null);
  all.mutex.unlock();
}

}  // namespace

unsigned fork_count() {
  return handlers().count.load(std::memory_order_relaxed);
}

CloseOnFork::CloseOnFork(std::vector<int> descriptors) : descriptors_(std::move(descriptors)) {
  const std::lock_guard lock(handlers().mutex);
  handlers().descriptors.push_back(&descriptors_);
}

CloseOnFork::~CloseOnFork() {
  const std::lock_guard lock(handlers().mutex);
  std::erase(handlers().descriptors, &descriptors_);
}

}  // namespace gradwire
