#include "gradwire/torch/c10d_work.h"

#include <stdexcept>
#include <utility>

#include <ATen/core/grad_mode.h>

namespace gradwire {
namespace {

class C10dWork final : public WorkState {
 public:
  C10dWork(c10::intrusive_ptr<c10d::Work> work, std::function<void()> finish)
      : work_(std::move(work)), finish_(std::move(finish)) {}

  bool done() override { return work_->isCompleted(); }
  void wait() override {
    with_our_errors([&] { work_->wait(); });
    const at::NoGradGuard no_grad;
    if (finish_) finish_();
    if (callback_) callback_(handle());
  }
  void on_done(std::function<void(const Work&)> callback) override {
    callback_ = std::move(callback);
  }

 private:
  c10::intrusive_ptr<c10d::Work> work_;
  std::function<void()> finish_;
  std::function<void(const Work&)> callback_;
};

}  // namespace

void with_our_errors(const std::function<void()>& action) {
  try {
    action();
  } catch (const Exception&) {
    throw;
  } catch (const c10::OutOfMemoryError&) {
    throw;
  } catch (const c10::AcceleratorError&) {
    throw;
  } catch (const c10::Error& error) {
    throw Exception(ErrorKind::disconnected, error.what_without_backtrace());
  } catch (const std::runtime_error& error) {  // Gloo's and MPI's.
    throw Exception(ErrorKind::disconnected, error.what());
  }
}

Work work_of(c10::intrusive_ptr<c10d::Work> work, std::function<void()> finish) {
  return Work(std::make_shared<C10dWork>(std::move(work), std::move(finish)));
}

}  // namespace gradwire
