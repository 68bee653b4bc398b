#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <vector>

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

namespace gradwire::test {

/// Ranks of a host, as threads of this process.
class Host {
 public:
  explicit Host(int ranks) : tensors_(static_cast<std::size_t>(ranks)) {}

  /// Calls `action` with the tensors of all ranks, which none changes before all have returned.
  void meet(int rank, const at::Tensor& tensor,
            const std::function<void(const std::vector<at::Tensor>&)>& action) {
    tensors_[static_cast<std::size_t>(rank)] = tensor;
    wait_for_all();
    action(tensors_);
    wait_for_all();
  }
  /// Fails the calls of all ranks, as a connection that is closed does.
  void abort() {
    const std::lock_guard lock(mutex_);
    is_aborted_ = true;
    changed_.notify_all();
  }

 private:
  void wait_for_all() {
    std::unique_lock lock(mutex_);
    const std::size_t round = round_;
    if (++arrived_ == tensors_.size()) {
      arrived_ = 0;
      ++round_;
      changed_.notify_all();
    }
    changed_.wait(lock, [&] { return round_ != round || is_aborted_; });
    if (round_ == round) throw std::runtime_error("another rank of the host is gone");
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<at::Tensor> tensors_;
  std::size_t arrived_ = 0;
  std::size_t round_ = 0;
  bool is_aborted_ = false;
};

/// A backend of another library: it sends nothing. Its calls block. `calls` counts them; after
/// `fail_at` calls they throw.
class HostBackend final : public c10d::Backend {
 public:
  HostBackend(std::shared_ptr<Host> host, int rank, int ranks)
      : c10d::Backend(rank, ranks), host_(std::move(host)) {}

  std::atomic<int> calls = 0;
  int fail_at = -1;

  const std::string getBackendName() const override { return "host"; }
  c10::intrusive_ptr<c10d::Work> _reduce_scatter_base(
      at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& options) override {
    count_call();
    host_->meet(rank_, input, [&](const std::vector<at::Tensor>& all) {
      output.copy_(all[0].chunk(size_)[static_cast<std::size_t>(rank_)]);
      for (std::size_t r = 1; r < all.size(); ++r)
        reduce(output, all[r].chunk(size_)[static_cast<std::size_t>(rank_)], options.reduceOp);
    });
    return done(output);
  }
  c10::intrusive_ptr<c10d::Work> _allgather_base(at::Tensor& output, at::Tensor& input,
                                                 const c10d::AllgatherOptions& /*opts*/) override {
    count_call();
    if (input.scalar_type() != at::kByte) throw std::runtime_error("the host moves bytes alone");
    host_->meet(rank_, input.clone(),
                [&](const std::vector<at::Tensor>& all) { output.copy_(at::cat(all)); });
    return done(output);
  }
  void abort() override { host_->abort(); }

 private:
  void count_call() {
    if (calls++ == fail_at) throw std::runtime_error("the host's bus is broken");
  }
  static void reduce(const at::Tensor& into, const at::Tensor& other, const c10d::ReduceOp& op) {
    if (op == c10d::ReduceOp::MAX) {
      into.copy_(at::maximum(into, other));
    } else {
      into.add_(other);
    }
  }
  static c10::intrusive_ptr<c10d::Work> done(const at::Tensor& output) {
    auto future = c10::make_intrusive<c10::ivalue::Future>(c10::TensorType::get());
    future->markCompleted(output);
    return c10d::Work::create_from_future(future);
  }

  std::shared_ptr<Host> host_;
};

/// A backend whose calls never end, and that cannot abort them.
class StuckBackend final : public c10d::Backend {
 public:
  using c10d::Backend::Backend;

  std::atomic<std::chrono::milliseconds> timeout{};  ///< The last reduction's.

  const std::string getBackendName() const override { return "stuck"; }
  c10::intrusive_ptr<c10d::Work> _reduce_scatter_base(
      at::Tensor& /*output*/, at::Tensor& /*input*/,
      const c10d::ReduceScatterOptions& options) override {
    timeout = options.timeout;
    return c10d::Work::create_from_future(
        c10::make_intrusive<c10::ivalue::Future>(c10::TensorType::get()));
  }
  void shutdown() override { throw std::logic_error("it waits for its calls"); }
};

}  // namespace gradwire::test
