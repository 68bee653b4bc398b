// A rank that is lost in any phase of a pipeline ends all others, which say where they were.
#include <csignal>
#include <map>
#include <memory>
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <unistd.h>

#include "gradwire/pipeline/catalogue.h"
#include "gradwire/torch/process_group.h"
#include "gradwire/torch/store.h"
#include "gradwire/train/parallel_mesh.h"
#include "tests/support/temporary_folder.h"
#include "tests/train/pipeline_model.h"
#include "tests/train/subprocess.h"

namespace gradwire::test {
namespace {

using ::testing::ContainsRegex;

constexpr int kProcesses = 4;
constexpr int kMicroBatches = 6;
constexpr int kSteps = 6, kLostIn = 2;

/// Ends or stops its process at a place in the training.
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

/// Four processes, one of which is lost.
struct LostRank {
  std::string schedule = "1f1b";
  int replicas = 1;
  int zero_stage = 0;
  int lost = 1;
  std::string phase = "steady";
  int signal = SIGKILL;
};

std::string text_of(const LostRank& what) {
  return fmt::format("{}, {} replicas, ZeRO {}, rank {} lost in {}", what.schedule, what.replicas,
                     what.zero_stage, what.lost, what.phase);
}

/// Trains as one rank. The lost one sends itself the signal at a task of the phase: warm-up,
/// steady, drain; in the optimizer's step: update; at the last task before the norm of all
/// gradients: clip.
void train(const LostRank& what, const ProcessGroup& world) {
  const ParallelMesh mesh(world,
                          {.data = what.replicas, .pipeline = world->getSize() / what.replicas});
  const int stages = mesh.pipeline()->getSize();
  const auto fuse = std::make_shared<Fuse>();
  fuse->signal = what.signal;
  if (world->getRank() == what.lost) {
    set_place(*fuse, what.phase, what.schedule, stages, mesh.pipeline()->getRank());
  }
  auto options = pipeline_options(mesh.pipeline(), what.schedule, kMicroBatches);
  options.data = {.process_group = mesh.data(), .zero_stage = what.zero_stage};
  if (what.phase == "clip") options.clip_norm = 1;
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

/// One process of the pipeline. Throws the error that ends it.
int run_rank(const LostRank& what, int rank, const std::filesystem::path& folder) {
  at::set_num_threads(1);
  torch::manual_seed(11);
  bootstrap::Job job;
  job.rank = job.local_rank = rank;
  job.world_size = job.local_world_size = kProcesses;
  job.secret = "for this test only";
  const auto store =
      c10::make_intrusive<c10d::FileStore>((folder / "store").string(), job.world_size);
  const auto world =
      make_process_group(Communicator::connect(job, {}, std::make_shared<C10dStore>(store)), store);
  train(what, world);
  return 0;
}

/// Each survivor ends by itself, and names the lost rank, and its own stage and micro-batch, or the
/// update of its stage.
void expect_that_all_end(const LostRank& what) {
  const TemporaryFolder folder;
  Subprocesses survivors, lost;
  for (int rank = 0; rank < kProcesses; ++rank) {
    (rank == what.lost ? lost : survivors).fork([&, rank] {
      return run_rank(what, rank, folder.path());
    });
  }
  for (const Finished& each : survivors.wait()) {
    SCOPED_TRACE(fmt::format("{}: a survivor said: {}", text_of(what), each.output));
    EXPECT_EQ(each.status, 1);
    EXPECT_THAT(each.output,
                ContainsRegex("step [0-9]+, ([0-9]+[FBIW][0-9]+(-[0-9]+)?: .*micro-batch [0-9]+ "
                              ".*stage [0-9]+|the update of stage [0-9]+)"));
    EXPECT_THAT(each.output, ContainsRegex(fmt::format("rank {} \\(", what.lost)));
  }
  // A stopped rank is killed by the destructor.
  if (what.signal == SIGKILL) {
    EXPECT_EQ(lost.wait().front().status, 128 + SIGKILL);
  }
}

TEST(LostRank, EndsAPipelineInAnyPhase) {
  for (const std::string schedule : {"1f1b", "zero_bubble"}) {
    for (const std::string phase : {"warm-up", "steady", "drain", "update", "clip"}) {
      expect_that_all_end({.schedule = schedule, .phase = phase});
    }
  }
}

TEST(LostRank, EndsReplicasOfAPipelineInAnyPhase) {
  for (const std::string schedule : {"1f1b", "zero_bubble"}) {
    for (const std::string phase : {"warm-up", "steady", "drain", "update", "clip"}) {
      expect_that_all_end({.schedule = schedule, .replicas = 2, .lost = 2, .phase = phase});
    }
  }
}

TEST(LostRank, EndsShardedReplicasInAnyPhase) {
  for (const int zero_stage : {1, 3}) {
    for (const std::string phase : {"warm-up", "steady", "drain", "update", "clip"}) {
      expect_that_all_end(
          {.replicas = 2, .zero_stage = zero_stage, .lost = zero_stage, .phase = phase});
    }
  }
}

TEST(LostRank, EndsAnAsynchronousPipeline) {
  for (const std::string schedule : {"pipedream", "2bw"}) {
    for (const std::string phase : {"steady", "update"}) {
      for (const int replicas : {1, 2}) {
        expect_that_all_end(
            {.schedule = schedule, .replicas = replicas, .lost = 2, .phase = phase});
      }
    }
  }
}

TEST(LostRank, AtEitherEndOfThePipelineIsNamedToo) {
  for (const int lost : {0, 3}) expect_that_all_end({.schedule = "zero_bubble", .lost = lost});
}

TEST(LostRank, IsNoticedIfItFallsSilent) {
  expect_that_all_end({.lost = 2, .signal = SIGSTOP});
  expect_that_all_end({.replicas = 2, .lost = 2, .phase = "update", .signal = SIGSTOP});
}

}  // namespace
}  // namespace gradwire::test
