// One process of a pipeline that loses a rank in its third step:
//
//     lost_rank RANK RANKS FOLDER SCHEDULE REPLICAS ZERO_STAGE LOST PHASE SIGNAL
//
// Rank LOST sends itself the signal at a task of the phase: warm-up, steady, drain; in the
// optimizer's step: update; at the last task before the norm of all gradients: clip. The others
// print their error, and exit with status 1. FOLDER is empty, and the same for all.
#include <csignal>
#include <iostream>
#include <map>
#include <memory>
#include <string>

#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <unistd.h>

#include "gradwire/pipeline/catalogue.h"
#include "gradwire/torch/process_group.h"
#include "gradwire/torch/store.h"
#include "gradwire/train/parallel_mesh.h"
#include "tests/train/pipeline_model.h"

namespace gradwire::test {
namespace {

constexpr int kMicroBatches = 6;
constexpr int kSteps = 6, kLostIn = 2;

/// Ends or stops this process at a place in the training.
struct Fuse {
  std::string kind;  ///< F, B (gradients of inputs), W (of weights), update; empty: never.
  int micro_batch = 0;
  int signal = SIGKILL;

  void reached(int step, const std::string& where, int i) const {
    if (step == kLostIn && where == kind && i == micro_batch) ::kill(::getpid(), signal);
  }
};

/// A layer that tells the fuse of its computations. The order is that of the micro-batches.
class FusedImpl : public torch::nn::Module {
 public:
  FusedImpl(int in, int out, std::shared_ptr<Fuse> fuse)
      : linear_(register_module("linear", torch::nn::Linear(in, out))), fuse_(std::move(fuse)) {
    linear_->weight.register_hook([this](const torch::Tensor&) { reached("W"); });
  }

  torch::Tensor forward(const torch::Tensor& x) {
    torch::Tensor y = torch::tanh(linear_(x));
    if (!is_training() || !torch::GradMode::is_enabled()) return y;
    reached("F");
    y.register_hook([this](const torch::Tensor&) { reached("B"); });
    return y;
  }

 private:
  void reached(const std::string& where) {
    const int count = counts_[where]++;
    fuse_->reached(count / kMicroBatches, where, count % kMicroBatches);
  }

  torch::nn::Linear linear_;
  std::shared_ptr<Fuse> fuse_;
  std::map<std::string, int> counts_;
};
TORCH_MODULE(Fused);

Layers fused_layers(int stages, const std::shared_ptr<Fuse>& fuse) {
  Layers layers;
  for (int i = 0; i < stages; ++i) {
    const int in = i == 0 ? 5 : 8, out = i + 1 == stages ? 3 : 8;
    layers.add(fmt::format("stage{}", i), [in, out, fuse] { return Fused(in, out, fuse); });
  }
  return layers;
}

/// Sets the place in the order of a pipeline's rank that the phase means.
void set_place(Fuse& fuse, const std::string& phase, const std::string& schedule, int ranks,
               Rank rank) {
  fuse.kind = phase;
  const auto made = value_or_throw(
      pipeline::make_pipeline(schedule, {.ranks = ranks, .micro_batches = kMicroBatches}));
  const auto& order = made.order[static_cast<std::size_t>(rank)];
  const auto place = [&](std::size_t at) {
    constexpr const char* kKinds[] = {"F", "B", "B", "W"};
    fuse.kind = kKinds[static_cast<std::size_t>(order[at].compute)];
    fuse.micro_batch = order[at].micro_batch;
  };
  if (phase == "warm-up") place(ranks > 1 && rank + 1 < ranks ? 1 : 0);
  if (phase == "steady") place(order.size() / 2);
  if (phase == "drain" || phase == "clip") place(order.size() - 1);
}

void train(const ProcessGroup& world, char** argv) {
  const std::string schedule = argv[4], phase = argv[8];
  const int replicas = std::stoi(argv[5]);
  const ParallelMesh mesh(world, {.data = replicas, .pipeline = world->getSize() / replicas});
  const int stages = mesh.pipeline()->getSize();
  const auto fuse = std::make_shared<Fuse>();
  fuse->signal = std::stoi(argv[9]);
  if (world->getRank() == std::stoi(argv[7])) {
    set_place(*fuse, phase, schedule, stages, mesh.pipeline()->getRank());
  }
  auto options = pipeline_options(mesh.pipeline(), schedule, kMicroBatches);
  options.data = {.process_group = mesh.data(), .zero_stage = std::stoi(argv[6])};
  if (phase == "clip") options.clip_norm = 1;
  Pipeline model(fused_layers(stages, fuse), options);
  for (int step = 0; step < kSteps; ++step) {
    const auto batch = pipeline_batch(2 * kMicroBatches, step);
    const auto update = [=](torch::optim::Optimizer&) { fuse->reached(step, "update", 0); };
    model.train_step(
        batch.inputs, batch.targets,
        {.next_samples = step + 1 < kSteps ? 2 * kMicroBatches : -1, .before = update});
  }
  model.finish();
}

int run(char** argv) {
  at::set_num_threads(1);
  torch::manual_seed(11);
  bootstrap::Job job;
  job.rank = job.local_rank = std::stoi(argv[1]);
  job.world_size = job.local_world_size = std::stoi(argv[2]);
  job.secret = "for this test only";
  const auto store =
      c10::make_intrusive<c10d::FileStore>(std::string(argv[3]) + "/store", job.world_size);
  const auto world =
      make_process_group(Communicator::connect(job, {}, std::make_shared<C10dStore>(store)), store);
  try {
    train(world, argv);
  } catch (const std::exception& e) {
    std::cout << e.what() << std::endl;
    return 1;
  }
  std::cout << "trained" << std::endl;
  return 0;
}

}  // namespace
}  // namespace gradwire::test

int main(int argc, char** argv) {
  return argc == 10 ? gradwire::test::run(argv) : 2;
}
