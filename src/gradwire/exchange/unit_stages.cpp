#include "gradwire/exchange/unit_stages.h"

#include <exception>
#include <optional>
#include <utility>

namespace gradwire::exchange {

class UnitStages::StagedWork final : public WorkState {
 public:
  StagedWork(std::shared_ptr<UnitTracker> tracker, std::size_t unit, std::function<void()> finish)
      : tracker_(std::move(tracker)), unit_(unit), finish_(std::move(finish)) {}

  bool done() override { return tracker_->done(unit_); }
  void wait() override {
    tracker_->wait(unit_);
    if (finish_) finish_();
  }
  void on_done(std::function<void(const Work&)> callback) override {
    // The tracker may outlive the handles.
    tracker_->on_done(unit_, [self = weak_from_this(), callback = std::move(callback)] {
      callback(Work(self.lock()));
    });
  }

 private:
  std::shared_ptr<UnitTracker> tracker_;
  std::size_t unit_;
  std::function<void()> finish_;
};

UnitStages::UnitStages(std::size_t units, std::function<void(const std::string&)> abort,
                       std::string where)
    : abort_(std::move(abort)),
      where_(std::move(where)),
      priorities_(units),
      tracker_(std::make_shared<UnitTracker>(units)),
      worker_(std::make_unique<CodecWorker>()),
      queue_(worker_->queue()) {}

UnitStages::~UnitStages() = default;

Work UnitStages::begin(std::size_t unit, std::size_t pieces, int priority,
                       std::function<void()> finish) {
  tracker_->begin(unit, pieces);
  priorities_[unit] = priority;
  return Work(std::make_shared<StagedWork>(tracker_, unit, std::move(finish)));
}

void UnitStages::add(std::size_t unit, int stage, std::function<void()> task) {
  queue_->add(priorities_[unit], stage, [this, task = std::move(task)] { run(task); });
}

void UnitStages::add_after(const Work& work, std::size_t unit, int stage,
                           std::function<void()> task) {
  work.on_done([this, tracker = tracker_, queue = queue_, where = where_, stage,
                priority = priorities_[unit], task = std::move(task)](const Work& done) mutable {
    if (const auto error = done.error()) {
      return tracker->fail({error->kind, where + error->message});
    }
    queue->add(priority, stage, [this, task = std::move(task)] { run(task); });
  });
  work.drive_in_background();
}

void UnitStages::add_when_ended(const Work& work, std::size_t unit, int stage,
                                std::function<void(const std::shared_ptr<const Error>&)> task) {
  work.on_done([this, queue = queue_, stage, priority = priorities_[unit],
                task = std::move(task)](const Work& done) mutable {
    queue->add(priority, stage,
               [this, error = done.error(), task = std::move(task)] { run([&] { task(error); }); });
  });
  work.drive_in_background();
}

void UnitStages::run(const std::function<void()>& task) {
  if (!tracker_->begin_access()) return;
  std::optional<Error> error;
  try {
    task();
  } catch (const Exception& e) {
    error = {e.kind(), where_ + e.what()};
  } catch (const std::exception& e) {
    error = {ErrorKind::system, e.what()};
  }
  if (error) {
    tracker_->fail(*error);
    abort_(error->message);  // Tells the other ranks.
  }
  tracker_->end_access();
}

}  // namespace gradwire::exchange
