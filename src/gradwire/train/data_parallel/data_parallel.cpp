#include "gradwire/train/data_parallel/data_parallel.h"

#include "gradwire/base/refuse.h"
#include "gradwire/host/buckets.h"
#include "gradwire/host/training_host.h"
#include "gradwire/torch/init.h"
#include "gradwire/train/data_parallel/bucket_optimizers.h"
#include "gradwire/train/parallel/parallel_module.h"

namespace gradwire {
namespace {

constexpr const char* kDataParallel = "DataParallel";

std::unique_ptr<Buckets> make_buckets(const torch::nn::Module& module,
                                      const DataParallelOptions& options) {
  if (!options.process_group) {
    refuse("DataParallel: no process_group; pass {.process_group = gradwire::init()}");
  }
  if (!(options.bucket_cap_mb > 0)) {
    refuse("DataParallel: bucket_cap_mb is {}; it must be positive", options.bucket_cap_mb);
  }
  initialize_vector_math();
  broadcast_model(kDataParallel, options.process_group, all_parameters(module),
                  all_buffers(module));
  return std::make_unique<Buckets>(
      options.process_group, kDataParallel, trainable_parameters(module),
      BucketsOptions{.limits = step::limits_capped_at(options.bucket_cap_mb),
                     .divided = divided_parameters(module),
                     .compress = options.codec != "none",
                     .codec_min_elements = options.codec_min_elements,
                     .find_unused = options.find_unused_parameters,
                     .check_finite = options.check_finite});
}

TrainingHostOptions host_options(const DataParallelOptions& options, bool sequential) {
  return {.who = kDataParallel,
          .policy = {.stage = 0, .overlap = options.overlap},
          .exchange = {.codec = options.codec,
                       .warmup_steps = options.codec_warmup_steps,
                       .seed = options.codec_seed,
                       .can_abandon = options.can_abandon},
          .forward_awaits = options.forward_awaits || sequential,
          .broadcast_buffers = options.broadcast_buffers,
          .find_unused = options.find_unused_parameters,
          .clock = options.clock,
          .trace = options.trace};
}

}  // namespace

const DataParallelOptions& with_optimizer_for_overlap(const DataParallelOptions& options) {
  if (options.overlap == step::Overlap::full && !options.optimizer) {
    refuse(
        "DataParallel: Overlap::full requires an optimizer that steps bucket by "
        "bucket; pass {.optimizer = ...} and call step(), or use Overlap::backward");
  }
  return options;
}

DataParallelCore::DataParallelCore(torch::nn::Module& module, const DataParallelOptions& options,
                                   bool sequential)
    : buckets_(make_buckets(module, options)),
      optimizers_(options.optimizer
                      ? std::make_unique<BucketOptimizers>(*buckets_, options.optimizer)
                      : nullptr),
      own_host_(std::make_unique<TrainingHost>(options.process_group, *buckets_, optimizers_.get(),
                                               all_buffers(module),
                                               host_options(options, sequential))) {
  set_host(*own_host_);
}

DataParallelCore::~DataParallelCore() = default;

void DataParallelCore::step(BeforeStep before, double factor) {
  if (!optimizers_) {
    if (buckets_->parameters().empty()) return;
    refuse(
        "DataParallel: step() without an optimizer; pass {.optimizer = ...}, or step "
        "your own optimizer");
  }
  host().finish_step();
  optimizers_->set_before(std::move(before));
  host().begin_step(factor);
}

std::vector<torch::optim::Optimizer*> DataParallelCore::optimizers() {
  return optimizers_ ? optimizers_->optimizers() : std::vector<torch::optim::Optimizer*>();
}

}  // namespace gradwire
