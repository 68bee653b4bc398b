#include "gradwire/train/hogwild/hogwild.h"

#include <atomic>
#include <exception>
#include <mutex>
#include <thread>

#include "gradwire/base/cpu.h"
#include "gradwire/base/error.h"
#include "gradwire/base/refuse.h"
#include "gradwire/train/hogwild/shared_parameters.h"

namespace gradwire {
namespace {

/// libtorch's operations use one thread each while this exists: the threads have the cores.
class OneThreadPerOperation {
 public:
  OneThreadPerOperation() : before_(at::get_num_threads()) { at::set_num_threads(1); }
  OneThreadPerOperation(const OneThreadPerOperation&) = delete;
  ~OneThreadPerOperation() { at::set_num_threads(before_); }

 private:
  int before_;
};

/// The error that ends all threads.
class FirstError {
 public:
  void set(std::exception_ptr error) {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::move(error);
    failed_ = true;
  }
  bool failed() const { return failed_.load(std::memory_order_relaxed); }
  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  std::mutex mutex_;
  std::exception_ptr error_;
  std::atomic<bool> failed_ = false;
};

/// On the stack of its thread, so that threads do not share the cache lines of its counters.
class SharingThread final : public HogwildThread {
 public:
  SharingThread(int index, int threads, const SharedParameters& shared,
                std::vector<torch::Tensor>& own, servers::UpdateOptions sampling,
                const FirstError& error)
      : index_(index),
        threads_(threads),
        shared_(shared),
        own_(own),
        updates_(std::move(sampling)),
        error_(error) {}

  int index() const override { return index_; }
  int threads() const override { return threads_; }
  void step(double rate) override {
    if (error_.failed()) {
      throw Exception(ErrorKind::aborted, "hogwild: another thread has failed; this one ends");
    }
    shared_.update(own_, rate, updates_);
    ++steps_;
  }

  void add_to(HogwildResult& result) const {
    result.steps += steps_;
    result.updates += updates_.counts().written;
    result.sampled += updates_.counts().sampled;
    result.lost += updates_.counts().lost;
  }

 private:
  int index_, threads_;
  const SharedParameters& shared_;
  std::vector<torch::Tensor>& own_;
  servers::LockFreeUpdates updates_;
  const FirstError& error_;
  std::int64_t steps_ = 0;
};

void copy_buffers(const torch::nn::Module& from, const torch::nn::Module& to) {
  const torch::NoGradGuard no_grad;
  const auto buffers = all_buffers(from);
  auto copies = to.named_buffers();
  for (const auto& [name, buffer] : buffers) {
    if (torch::Tensor* const copy = copies.find(name)) copy->copy_(buffer);
  }
}

}  // namespace

double HogwildResult::lost_updates() const {
  if (sampled == 0) return 0;
  return static_cast<double>(updates) * static_cast<double>(lost) / static_cast<double>(sampled);
}

int HogwildCore::threads_of(const HogwildOptions& options) {
  if (options.threads < 0) {
    refuse("hogwild: threads is {}; it must be positive, or 0: one for each usable core",
           options.threads);
  }
  const int cores = usable_cores();
  if (options.threads > cores && !options.oversubscribe) {
    refuse(
        "hogwild: {} threads on {} usable core{} (of the CPU affinity and quota): they would take "
        "turns, and a thread that waits in the middle of an update later overwrites many; use at "
        "most {}, or set oversubscribe",
        options.threads, cores, cores == 1 ? "" : "s", cores);
  }
  return options.threads == 0 ? cores : options.threads;
}

struct HogwildCore::Parts {
  Parts(const torch::nn::Module& first, const HogwildOptions& options)
      : shared(first, options.optimizer), sample_every(options.sample_every), seed(options.seed) {}

  /// The samples of a thread in a run.
  servers::UpdateOptions sampling(std::size_t thread) const {
    return {.sample_every = sample_every, .seed = mixed_seed({seed, runs, thread})};
  }

  SharedParameters shared;
  std::vector<std::vector<torch::Tensor>> own;  ///< The parameters of each thread's module.
  std::int64_t sample_every;
  std::uint64_t seed;
  std::uint64_t runs = 0;
};

HogwildCore::HogwildCore(const std::vector<torch::nn::Module*>& modules,
                         const HogwildOptions& options)
    : parts_(std::make_unique<Parts>(*modules.front(), options)) {
  parts_->own.push_back(SharedParameters::parameters_of(*modules.front()));
  for (std::size_t i = 1; i < modules.size(); ++i) {
    parts_->shared.share_with(*modules[i]);
    copy_buffers(*modules.front(), *modules[i]);
    parts_->own.push_back(SharedParameters::parameters_of(*modules[i]));
  }
}

HogwildCore::~HogwildCore() = default;

HogwildResult HogwildCore::run(const std::function<void(HogwildThread&)>& work) {
  const OneThreadPerOperation one_thread;
  const std::size_t threads = parts_->own.size();
  HogwildResult result{.threads = static_cast<int>(threads)};
  std::mutex adding;
  FirstError error;
  const auto run_one = [&](std::size_t index) {
    try {
      at::set_num_threads(1);  // Each thread has a setting of its own beside the process's.
      for (torch::Tensor& parameter : parts_->own[index]) parameter.mutable_grad().reset();
      SharingThread thread(static_cast<int>(index), result.threads, parts_->shared,
                           parts_->own[index], parts_->sampling(index), error);
      work(thread);
      const std::lock_guard lock(adding);
      thread.add_to(result);
    } catch (...) {
      error.set(std::current_exception());
    }
  };
  {
    std::vector<std::jthread> running;
    try {
      for (std::size_t i = 0; i < threads; ++i) running.emplace_back(run_one, i);
    } catch (...) {
      error.set(std::current_exception());
    }
  }
  ++parts_->runs;
  error.rethrow();
  return result;
}

}  // namespace gradwire
