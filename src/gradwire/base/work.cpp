#include "gradwire/base/work.h"

#include "gradwire/base/check.h"

namespace gradwire {
namespace {

class CompletedWork final : public WorkState {
 public:
  bool done() override { return true; }
  void wait() override {}
  void on_done(std::function<void(const Work&)> callback) override { callback(handle()); }
};

class WorkWithWait final : public WorkState {
 public:
  WorkWithWait(Work work, std::function<void(const Work&)> wait)
      : work_(std::move(work)), wait_(std::move(wait)) {}

  bool done() override { return work_.done(); }
  void wait() override { work_.done() ? work_.wait() : wait_(work_); }
  bool wait_for(Duration timeout) override { return work_.wait_for(timeout); }
  void on_done(std::function<void(const Work&)> callback) override {
    work_.on_done(std::move(callback));
  }
  std::shared_ptr<const Error> error() override { return work_.error(); }
  Rank source() override { return work_.source(); }
  void drive_in_background() override { work_.drive_in_background(); }

 private:
  Work work_;
  std::function<void(const Work&)> wait_;
};

}  // namespace

void Work::wait() const {
  GRADWIRE_CHECK(valid());
  state_->wait();
}

bool Work::wait_for(Duration timeout) const {
  GRADWIRE_CHECK(valid());
  return state_->wait_for(timeout);
}

bool Work::done() const {
  return state_->done();
}

std::shared_ptr<const Error> Work::error() const {
  return state_->error();
}

Rank Work::source() const {
  return state_->source();
}

void Work::on_done(std::function<void(const Work&)> callback) const {
  state_->on_done(std::move(callback));
}

void Work::drive_in_background() const {
  state_->drive_in_background();
}

Work completed_work() {
  return Work(std::make_shared<CompletedWork>());
}

Work work_with_wait(Work work, std::function<void(const Work&)> wait) {
  return Work(std::make_shared<WorkWithWait>(std::move(work), std::move(wait)));
}

}  // namespace gradwire
