#pragma once

#include <functional>
#include <utility>

#include <torch/csrc/distributed/c10d/Work.hpp>
#include <torch/torch.h>

#include "gradwire/exchange/exchange.h"

namespace gradwire {

/// A c10d::Work as a transfer. Completion is learned in wait(). `finish` runs after the work, in
/// stream order; may be empty.
class C10dTransfer final : public UnitTransfer {
 public:
  explicit C10dTransfer(c10::intrusive_ptr<c10d::Work> work, std::function<void()> finish = {})
      : work_(std::move(work)), finish_(std::move(finish)) {}

  bool done() override { return work_->isCompleted(); }
  void wait() override {
    work_->wait();
    const torch::NoGradGuard no_grad;
    if (finish_) finish_();
    if (callback_) callback_();
  }
  void on_done(std::function<void()> callback) override { callback_ = std::move(callback); }

 private:
  c10::intrusive_ptr<c10d::Work> work_;
  std::function<void()> finish_;
  std::function<void()> callback_;
};

}  // namespace gradwire
