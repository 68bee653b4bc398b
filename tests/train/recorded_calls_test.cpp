#include <mutex>

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/train/local_sgd/local_sgd.h"
#include "gradwire/train/parallel_mesh.h"
#include "tests/support/torch/queue_device.h"
#include "tests/support/torch/recording_group.h"
#include "tests/train/pipeline_model.h"
#include "tests/train/small_models.h"
#include "tests/train/zero_model.h"

/// Calls of strategies over groups that are not gradwire's: which ones, in which order, on which
/// stream. On an emulated accelerator, as NCCL's backend gets them.
namespace gradwire::test {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Pointwise;
using ::testing::ThrowsMessage;

MATCHER(MatchesCall, "matches") {
  return std::get<0>(arg).matches(std::get<1>(arg));
}

/// The backends of "cpu:gloo,cuda:nccl".
const RecordedNames kOnNccl{.host = "gloo", .device = "nccl"};
const RecordedNames kOnGloo{.host = "gloo", .device = "gloo"};
constexpr int kStepsAlone = -1;

/// ZeRO of a stage, DataParallel (0), or local steps.
struct RecordedStrategy {
  int stage = 0;
  step::Overlap overlap = step::Overlap::backward;
  OptimizerFactory optimizer = make_adam;
};

void PrintTo(const RecordedStrategy& strategy, std::ostream* out) {
  *out << "stage " << strategy.stage << ", overlap " << static_cast<int>(strategy.overlap);
}

struct Recorded {
  std::vector<std::vector<RecordedCall>> of_rank;
  std::vector<c10::StreamId> streams;  ///< On which the ranks trained.
  Values values;                       ///< Rank 0's.
};

/// Makes a stream of the rank's device current that is not its default.
c10::Stream stream_of_rank(int rank) {
  to_queue_device(at::empty({0}), rank);  // Makes the device current.
  return c10::impl::VirtualGuardImpl(at::kPrivateUse1).getStreamFromGlobalPool(queue_device(rank));
}

void train_locally(ZeroNet& module, const ProcessGroup& group) {
  LocalSgd local(all_parameters(*module), group,
                 {.steps = {.steps = 2, .outer_momentum = 0.9, .overlap_steps = 1}});
  const auto optimizer = make_adam(module->parameters());
  for (int step = 0; step < 5; ++step) {
    const auto [inputs, targets] = task_of(step, group->getRank(), group->getSize());
    const auto device = module->scale.device();
    torch::cross_entropy_loss(module->forward(inputs.to(device)), targets.to(device)).backward();
    optimizer->step();
    optimizer->zero_grad();
    local.step();
  }
  local.synchronize();
}

void train_with(const RecordedStrategy& strategy, ZeroNet& module, const ProcessGroup& group) {
  if (strategy.stage == kStepsAlone) return train_locally(module, group);
  if (strategy.stage > 0) {
    Zero model(module, {.process_group = group,
                        .stage = strategy.stage,
                        .optimizer = strategy.optimizer,
                        .overlap = strategy.overlap,
                        .min_block_elements = 0,
                        .prefetch_elements = 0});
    train_on_tasks(model, 4, 2, [&] { model.step(); });
    return model.consolidate();
  }
  DataParallel model(module, {.process_group = group,
                              .bucket_cap_mb = 0.002,
                              .find_unused_parameters = true,
                              .optimizer = strategy.optimizer,
                              .overlap = strategy.overlap});
  train_on_tasks(model, 4, 2, [&] { model.step(); });
  model.finish();
}

/// Trains on two ranks' devices; without names, over gradwire's own group.
Recorded train_recorded(const RecordedStrategy& strategy,
                        const std::optional<RecordedNames>& names) {
  Recorded all;
  all.of_rank.resize(2);
  all.streams.resize(2);
  run_on_loopback(2, [&](const ProcessGroup& own) {
    const int rank = own->getRank();
    const c10::Stream stream = stream_of_rank(rank);
    const c10::StreamGuard current(stream);
    ZeroNet module;
    initialise(*module, 1);
    for (const auto& parameter : module->parameters()) move_to_queue_device(parameter, rank);
    const auto recording = std::make_shared<Recording>();
    train_with(strategy, module, names ? recording_group(own, *names, recording) : own);
    const auto place = static_cast<std::size_t>(rank);
    all.of_rank[place] = recording->calls();
    all.streams[place] = stream.id();
    if (rank > 0) return;
    for (const auto& [name, tensor] : values_of(*module)) all.values[name] = to_host(tensor);
  });
  return all;
}

std::vector<RecordedCall> device_calls(const std::vector<RecordedCall>& calls) {
  std::vector<RecordedCall> there;
  for (const auto& call : calls) {
    if (call.device != c10::DeviceType::CPU) there.push_back(call);
  }
  return there;
}

std::set<std::string> reductions_of(const std::vector<RecordedCall>& calls) {
  std::set<std::string> names;
  for (const auto& call : calls) {
    if (!call.op.empty()) names.insert(call.name + " " + call.op);
  }
  return names;
}

struct OverAnotherBackend : ::testing::TestWithParam<RecordedStrategy> {
  OverAnotherBackend() {
    at::set_num_threads(1);
    install_queue_device();
  }
};

TEST_P(OverAnotherBackend, RanksMakeTheSameCallsOnTheCallersStream) {
  const Recorded recorded = train_recorded(GetParam(), kOnNccl);
  EXPECT_THAT(recorded.of_rank[0], Pointwise(MatchesCall(), recorded.of_rank[1]));
  for (std::size_t rank = 0; rank < 2; ++rank) {
    const auto there = device_calls(recorded.of_rank[rank]);
    ASSERT_FALSE(there.empty());
    EXPECT_NE(recorded.streams[rank], 0);
    const auto stream = recorded.streams[rank];
    EXPECT_THAT(there, Each(Field(&RecordedCall::stream, stream)));
    EXPECT_THAT(there, Each(Field(&RecordedCall::waited, AllOf(Not(IsEmpty()), Each(stream)))));
  }
}

TEST_P(OverAnotherBackend, AveragesWhereItCanAndTrainsTheBitsOfOurOwn) {
  const std::string operation = GetParam().stage > 0 ? "_reduce_scatter_base" : "allreduce";
  const Values own = train_recorded(GetParam(), std::nullopt).values;
  for (const auto& [names, op] : {std::pair{kOnNccl, " avg"}, std::pair{kOnGloo, " sum"}}) {
    const Recorded recorded = train_recorded(GetParam(), names);
    EXPECT_EQ(difference(own, recorded.values), 0) << names.device;
    EXPECT_EQ(reductions_of(device_calls(recorded.of_rank[0])), std::set{operation + op});
  }
}

INSTANTIATE_TEST_SUITE_P(
    Strategies, OverAnotherBackend,
    ::testing::Values(RecordedStrategy{.stage = 0},
                      RecordedStrategy{.stage = 0, .overlap = step::Overlap::full},
                      RecordedStrategy{.stage = 1}, RecordedStrategy{.stage = 2},
                      RecordedStrategy{.stage = 2, .overlap = step::Overlap::full},
                      RecordedStrategy{.stage = 3},
                      RecordedStrategy{.stage = 3, .overlap = step::Overlap::full},
                      RecordedStrategy{.stage = kStepsAlone}));

TEST_F(OverAnotherBackend, AGroupWithoutABackendForTheHostIsRefused) {
  run_on_loopback(2, [](const ProcessGroup& own) {
    const c10::StreamGuard current(stream_of_rank(own->getRank()));
    const auto group = recording_group(own, {.device = "nccl"}, std::make_shared<Recording>());
    for (const int stage : {0, 3, kStepsAlone}) {
      ZeroNet module;
      EXPECT_THAT([&] { train_with({.stage = stage}, module, group); },
                  ThrowsMessage<Exception>(
                      HasSubstr("no backend for tensors in host memory: make it with one, such as "
                                "\"cpu:gloo,cuda:nccl\"")));
    }
  });
}

/// Tag and size of each message to or from a rank, in any order.
std::multiset<std::pair<int, std::int64_t>> messages_with(const std::vector<RecordedCall>& calls,
                                                          const std::string& name, int peer) {
  std::multiset<std::pair<int, std::int64_t>> found;
  for (const auto& call : calls) {
    if (call.name == name && call.peer == peer) found.emplace(call.tag, call.elements);
  }
  return found;
}

/// Calls without a wait().
std::vector<RecordedCall> calls_in_flight(std::vector<RecordedCall> calls) {
  std::erase_if(calls, [](const auto& call) { return !call.waited.empty(); });
  return calls;
}

/// Trains a pipeline of four stages, over gradwire's own group or recorded.
NamedValues train_four_stages(std::vector<std::vector<RecordedCall>>* of_rank,
                              const std::string& codec = "none") {
  TrainedParts trained;
  on_ranks(4, [&](const ProcessGroup& own) {
    const auto recording = std::make_shared<Recording>();
    const auto group = of_rank ? recording_group(own, {.host = "gloo"}, recording) : own;
    auto options = pipeline_options(group, "1f1b", 4);
    options.activation_codec = {codec, codec};
    Pipeline model(shared_layers(), options);
    for (int step = 0; step < 4; ++step) {
      const auto batch = pipeline_batch(7, step);
      model.train_step(batch.inputs, batch.targets);
    }
    model.finish();
    trained.take(state_values(model));
    if (of_rank) (*of_rank)[static_cast<std::size_t>(own->getRank())] = recording->calls();
  });
  return trained.values();
}

TEST(PipelineOverAnotherBackend, EveryMessageIsReceivedAndWaitedFor) {
  std::vector<std::vector<RecordedCall>> of_rank(4);
  const NamedValues values = train_four_stages(&of_rank);
  expect_same(values, train_four_stages(nullptr), "the same bits");
  for (int from = 0; from < 4; ++from) {
    const auto& calls = of_rank[static_cast<std::size_t>(from)];
    EXPECT_THAT(calls_in_flight(calls), IsEmpty());
    for (int to = 0; to < 4; ++to) {
      const auto sent = messages_with(calls, "send", to);
      EXPECT_EQ(sent, messages_with(of_rank[static_cast<std::size_t>(to)], "recv", from));
      EXPECT_EQ(sent.empty(), std::abs(from - to) != 1) << from << " to " << to;
    }
  }
}

TEST(PipelineOverAnotherBackend, ActivationsMayBeEncoded) {
  std::vector<std::vector<RecordedCall>> of_rank(4);
  const NamedValues values = train_four_stages(&of_rank, "int8");
  expect_same(values, train_four_stages(nullptr, "int8"), "the same bits");
  EXPECT_FALSE(
      torch::equal(values.at("input.weight"), train_four_stages(nullptr).at("input.weight")));
}

/// Replicas of two stages, whose means go over recorded groups.
TEST(PipelineOverAnotherBackend, ReplicasMakeTheSameCalls) {
  for (const int zero_stage : {0, 1}) {
    std::vector<std::vector<RecordedCall>> of_rank(4);
    on_ranks(4, [&](const ProcessGroup& world) {
      const ParallelMesh mesh(world, {.data = 2, .pipeline = 2});
      const auto recording = std::make_shared<Recording>();
      auto options = pipeline_options(mesh.pipeline(), "1f1b", 4);
      options.data = {.process_group = recording_group(mesh.data(), {.host = "gloo"}, recording),
                      .zero_stage = zero_stage};
      Pipeline model(shared_layers(), options);
      const auto batch = pipeline_batch(8, 0);
      model.train_step(batch.inputs, batch.targets);
      const int place = 2 * mesh.pipeline()->getRank() + mesh.data()->getRank();
      of_rank[static_cast<std::size_t>(place)] = recording->calls();
    });
    for (const std::size_t stage : {0, 1}) {
      EXPECT_THAT(of_rank[2 * stage], Pointwise(MatchesCall(), of_rank[2 * stage + 1]));
      const auto found = reductions_of(of_rank[2 * stage]);
      EXPECT_TRUE(found.contains(zero_stage == 0 ? "allreduce sum" : "_reduce_scatter_base sum"));
    }
  }
}

}  // namespace
}  // namespace gradwire::test
