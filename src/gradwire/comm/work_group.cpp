#include "gradwire/comm/work_group.h"

#include <mutex>
#include <utility>

namespace gradwire {
namespace {

/// Counts the works that are still in flight.
class Countdown {
 public:
  Countdown(std::size_t works, std::shared_ptr<engine::PostedWork> whole)
      : left_(works), whole_(std::move(whole)) {}

  void one_done(const Work& work) {
    const std::shared_ptr<const Error> failed = work.error();
    std::shared_ptr<const Error> first;
    {
      const std::lock_guard lock(mutex_);
      if (failed && !error_) error_ = failed;
      if (--left_ > 0) return;
      first = error_;
    }
    whole_->conclude(std::move(first));
  }

 private:
  std::mutex mutex_;
  std::size_t left_;
  std::shared_ptr<const Error> error_;
  std::shared_ptr<engine::PostedWork> whole_;
};

}  // namespace

Work work_group(std::shared_ptr<engine::Engine> engine, std::span<const Work> works) {
  auto whole = std::make_shared<engine::PostedWork>(std::move(engine));
  if (works.empty()) {
    whole->conclude(nullptr);
    return Work(std::move(whole));
  }
  auto countdown = std::make_shared<Countdown>(works.size(), whole);
  for (const Work& work : works) {
    work.on_done([countdown](const Work& done) { countdown->one_done(done); });
  }
  return Work(std::move(whole));
}

}  // namespace gradwire
