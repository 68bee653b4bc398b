#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include "gradwire/train/optim/optimizer_factory.h"

namespace gradwire {

struct HogwildOptions {
  /// Makes torch::optim::SGD without momentum, or torch::optim::Adagrad without lr_decay, maybe
  /// with parameter groups. The threads step by its settings and states, and without its step().
  OptimizerFactory optimizer;
  int threads = 0;  ///< 0: one for each core that this process may use.
  /// More threads than usable cores are refused without this.
  bool oversubscribe = false;
  /// One of this many updated elements, on average, is examined for a lost update.
  std::int64_t sample_every = 4096;
  std::uint64_t seed = 1;  ///< Draws these samples.
};

/// The work of all threads together.
struct HogwildResult {
  int threads = 0;
  std::int64_t steps = 0;    ///< Calls of HogwildThread::step().
  std::int64_t updates = 0;  ///< Elements of parameters that were updated.
  std::int64_t sampled = 0;  ///< Elements of these that were examined.
  std::int64_t lost = 0;     ///< Those of the samples that overwrote another thread's update.

  /// Estimated number of updates that overwrote another one.
  double lost_updates() const;
};

/// One of the threads, for its own use.
class HogwildThread {
 public:
  virtual ~HogwildThread() = default;
  virtual int index() const = 0;  ///< 0 .. threads() - 1.
  virtual int threads() const = 0;

  /// Updates the shared parameters by the gradients of this thread's module, at `rate` times the
  /// optimizer's learning rates, and drops the gradients. Parameters without a gradient stay as
  /// they are; of a sparse gradient (Embedding, EmbeddingBag with `sparse`) only its rows change.
  /// Throws Exception(aborted) if another thread has failed.
  virtual void step(double rate = 1) = 0;
};

/// The part of Hogwild that does not depend on the module's type.
class HogwildCore {
 public:
  /// `modules`: one for each thread, which must outlive it.
  HogwildCore(const std::vector<torch::nn::Module*>& modules, const HogwildOptions& options);
  ~HogwildCore();

  HogwildResult run(const std::function<void(HogwildThread&)>& work);

  /// The number of threads of these options. Throws Exception(invalid_argument) if there are fewer
  /// usable cores.
  static int threads_of(const HogwildOptions& options);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

/// Training by threads of one process that share parameters and update them without locks
/// (Hogwild!: Niu, Recht, Re, Wright, NeurIPS 2011). It suits models whose gradients are sparse, so
/// that threads seldom update the same elements. `Module` is a holder (TORCH_MODULE) or a
/// std::shared_ptr of a torch::nn::Module.
///
///     std::atomic<std::int64_t> next = 0;
///     const auto result = gradwire::hogwild(
///         net, [] { return Net(); }, {.optimizer = make_sgd},
///         [&](Net& mine, gradwire::HogwildThread& thread) {
///           for (std::int64_t at; (at = next.fetch_add(64)) < samples;) {
///             auto [inputs, targets] = batch(at, 64);
///             torch::nll_loss(mine->forward(inputs), targets).backward();
///             thread.step();
///           }
///         });
///
/// Each thread has a module of its own, whose parameters have the memory of the first one's, and
/// whose gradients and buffers are its own. Parameters must be contiguous float32 of the CPU. Use
/// HogwildThread::step(): the step() of libtorch's optimizers would be a data race. libtorch's
/// forward and backward read shared parameters by plain loads while other threads update them; that
/// race is part of the method, and ThreadSanitizer reports it. Results are not reproducible.
///
/// While threads run, libtorch's operations use one thread each (at::set_num_threads), in the
/// whole process.
///
/// Errors: throws Exception. Not thread-safe.
template <class Module>
class Hogwild {
 public:
  using Work = std::function<void(Module& mine, HogwildThread& thread)>;

  /// `model` is trained, and is the first thread's module. `make` makes those of the other threads,
  /// with parameters of the same names and shapes; they get the buffers of `model`.
  Hogwild(Module model, const std::function<Module()>& make, const HogwildOptions& options) {
    modules_.push_back(std::move(model));
    const int threads = HogwildCore::threads_of(options);
    while (modules_.size() < static_cast<std::size_t>(threads)) modules_.push_back(make());
    std::vector<torch::nn::Module*> pointers;
    for (Module& module : modules_) pointers.push_back(&*module);
    core_ = std::make_unique<HogwildCore>(pointers, options);
  }

  /// Runs `work` on all threads and waits for them, without gradients at first. An exception of one
  /// ends the others at their next step(), and is thrown here. May be called again: the states of
  /// the optimizer stay.
  HogwildResult run(const Work& work) {
    return core_->run([&](HogwildThread& thread) {
      work(modules_[static_cast<std::size_t>(thread.index())], thread);
    });
  }

  /// The module of each thread.
  std::vector<Module>& modules() { return modules_; }

 private:
  std::vector<Module> modules_;
  std::unique_ptr<HogwildCore> core_;
};

/// Runs a Hogwild once.
template <class Module, class Make>
HogwildResult hogwild(Module model, const Make& make, const HogwildOptions& options,
                      const typename Hogwild<Module>::Work& work) {
  return Hogwild<Module>(std::move(model), make, options).run(work);
}

}  // namespace gradwire
