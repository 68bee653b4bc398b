#include "gradwire/train/hogwild/hogwild.h"

#include <atomic>
#include <barrier>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/base/cpu.h"
#include "gradwire/base/error.h"
#include "gradwire/train/optim/layerwise.h"
#include "tests/support/error_of.h"
#include "tests/train/small_models.h"

/// Threads that share the parameters of a module.
namespace gradwire::test {
namespace {

namespace optim = torch::optim;
using testing::HasSubstr;

/// An embedding, sparse if asked for, and layers whose gradients have zeros; a buffer.
struct RowsNetImpl : torch::nn::Module {
  explicit RowsNetImpl(bool sparse = true) {
    table = register_module(
        "table", torch::nn::Embedding(torch::nn::EmbeddingOptions(32, 5).sparse(sparse)));
    hidden = register_module("hidden", torch::nn::Linear(5, 19));
    head = register_module("head", torch::nn::Linear(19, 3));
    unused = register_module("unused", torch::nn::Linear(2, 2));
    calls = register_buffer("calls", torch::zeros({1}));
  }
  torch::Tensor forward(const torch::Tensor& ids) {
    calls += 1;
    return head->forward(torch::relu(hidden->forward(table->forward(ids))));
  }
  torch::nn::Embedding table{nullptr};
  torch::nn::Linear hidden{nullptr}, head{nullptr}, unused{nullptr};
  torch::Tensor calls;
};
TORCH_MODULE(RowsNet);

RowsNet seeded_rows_net(bool sparse = true) {
  torch::manual_seed(3);
  return RowsNet(sparse);
}

/// With repeated ids.
torch::Tensor loss_of_batch(RowsNet& net, std::int64_t step) {
  const auto ids = (torch::arange(24) * torch::arange(24) + step).remainder(32);
  return torch::cross_entropy_loss(net->forward(ids), (ids + step).remainder(3));
}

template <class Optimizer, class Options>
OptimizerFactory making_hogwild(const Options& options) {
  return [options](std::vector<torch::Tensor> parameters) {
    return std::make_unique<Optimizer>(std::move(parameters), options);
  };
}

optim::SGDOptions plain_sgd(double rate) {
  return optim::SGDOptions(rate);
}

struct HogwildRule {
  std::string name;
  OptimizerFactory optimizer;
  bool sparse = true;
};

class HogwildWithOneThread : public testing::TestWithParam<HogwildRule> {};
INSTANTIATE_TEST_SUITE_P(
    Rules, HogwildWithOneThread,
    testing::Values(
        HogwildRule{"Sgd", making_hogwild<optim::SGD>(plain_sgd(0.3))},
        HogwildRule{"SgdDense", making_hogwild<optim::SGD>(plain_sgd(0.3).weight_decay(0.1)),
                    false},
        HogwildRule{"Adagrad", making_hogwild<optim::Adagrad>(optim::AdagradOptions(0.1))},
        HogwildRule{"AdagradDense",
                    making_hogwild<optim::Adagrad>(optim::AdagradOptions(0.1)
                                                       .weight_decay(0.1)
                                                       .initial_accumulator_value(0.01)
                                                       .eps(1e-6)),
                    false}),
    [](const auto& given) { return given.param.name; });

/// In two runs.
TEST_P(HogwildWithOneThread, HasTheBitsOfTheOptimizer) {
  constexpr std::int64_t kSteps = 30;
  const HogwildRule& rule = GetParam();
  RowsNet net = seeded_rows_net(rule.sparse), other = seeded_rows_net(rule.sparse);
  Hogwild<RowsNet> alone(net, [] { return RowsNet(); },
                         {.optimizer = rule.optimizer, .threads = 1});
  std::int64_t next = 0;
  for (const std::int64_t end : {kSteps / 2, kSteps}) {
    const auto result = alone.run([&](RowsNet& mine, HogwildThread& thread) {
      while (next < end) {
        loss_of_batch(mine, next++).backward();
        thread.step();
      }
    });
    EXPECT_EQ(result.steps, kSteps / 2);
    EXPECT_EQ(result.lost, 0);
    EXPECT_GT(result.updates, result.steps * 100);
  }
  torch::set_num_threads(1);
  const auto optimizer = rule.optimizer(trainable_parameters(*other));
  for (std::int64_t i = 0; i < kSteps; ++i) {
    optimizer->zero_grad();
    loss_of_batch(other, i).backward();
    optimizer->step();
  }
  expect_equal(net->parameters(), other->parameters());
}

TEST(HogwildThreads, StepWithGroupsAndFactors) {
  const OptimizerFactory groups = [](const std::vector<NamedTensor>& parameters) {
    std::vector<torch::Tensor> matrices, biases;
    for (const auto& [name, tensor] : parameters) {
      if (name != "head.bias") (tensor.dim() > 1 ? matrices : biases).push_back(tensor);
    }
    std::vector<optim::OptimizerParamGroup> all;
    all.emplace_back(matrices, std::make_unique<optim::SGDOptions>(0.2));
    all.emplace_back(biases, std::make_unique<optim::SGDOptions>(0.02));
    return std::make_unique<optim::SGD>(std::move(all), plain_sgd(1));
  };
  RowsNet net = seeded_rows_net(), other = seeded_rows_net();
  net->hidden->weight.set_requires_grad(false);
  other->hidden->weight.set_requires_grad(false);
  hogwild(
      net, [] { return RowsNet(); }, {.optimizer = groups, .threads = 1},
      [](RowsNet& mine, HogwildThread& thread) {
        loss_of_batch(mine, 0).backward();
        thread.step(0.5);
      });
  const auto optimizer = groups(trainable_parameters(*other));
  for (auto& group : optimizer->param_groups())
    group.options().set_lr(group.options().get_lr() / 2);
  loss_of_batch(other, 0).backward();
  optimizer->step();
  expect_equal(net->parameters(), other->parameters());
}

HogwildOptions two_threads(double rate) {
  return {.optimizer = making_hogwild<optim::SGD>(plain_sgd(rate)),
          .threads = 2,
          .oversubscribe = true,
          .sample_every = 1};
}

TEST(HogwildThreads, ShareParametersAndNothingElse) {
  RowsNet net = seeded_rows_net();
  net->calls.fill_(7);
  const torch::Tensor before = net->head->weight.detach().clone();
  Hogwild<RowsNet> threads(
      net, [] { return RowsNet(); }, two_threads(0.1));
  RowsNet& second = threads.modules()[1];
  EXPECT_FALSE(second.ptr() == net.ptr());
  for (const auto& item : net->named_parameters()) {
    EXPECT_EQ(second->named_parameters()[item.key()].data_ptr(), item.value().data_ptr());
  }
  EXPECT_TRUE(torch::equal(net->head->weight, before));
  std::barrier<> meeting(2);
  threads.run([&](RowsNet& mine, HogwildThread& thread) {
    EXPECT_EQ(thread.threads(), 2);
    if (thread.index() == 1) mine->forward(torch::arange(4));
    loss_of_batch(mine, 0).backward();
    EXPECT_TRUE(mine->head->weight.grad().defined());
    meeting.arrive_and_wait();
    if (thread.index() == 0) thread.step();
    meeting.arrive_and_wait();
    EXPECT_EQ(mine->head->weight.grad().defined(), thread.index() == 1);
    EXPECT_FALSE(torch::equal(mine->head->weight, before));
  });
  EXPECT_EQ(net->calls.item<float>(), 8);
  EXPECT_EQ(second->calls.item<float>(), 9);
}

TEST(HogwildThreads, UseOneThreadForEachOperation) {
  const int before = at::get_num_threads();
  RowsNet net;
  std::atomic<int> most = 0, all = 0;
  hogwild(
      net, [] { return RowsNet(); }, two_threads(0.1),
      [&](RowsNet&, HogwildThread&) {
        most = std::max(most.load(), at::get_num_threads());
        ++all;
      });
  EXPECT_EQ(most, 1);
  EXPECT_EQ(all, 2);
  EXPECT_EQ(at::get_num_threads(), before);
}

/// Adds 1 to all elements of a row.
void add_to_row(torch::nn::Embedding& table, std::int64_t row, HogwildThread& thread) {
  (-table->forward(torch::tensor({row})).sum()).backward();
  thread.step();
}

torch::nn::Embedding zero_table() {
  torch::nn::Embedding table(torch::nn::EmbeddingOptions(4, 16).sparse(true));
  torch::nn::init::zeros_(table->weight);
  return table;
}

TEST(HogwildThreads, LoseNothingOnRowsOfTheirOwn) {
  constexpr int kSteps = 2000;
  torch::nn::Embedding table = zero_table();
  const auto result = hogwild(table, zero_table, two_threads(1),
                              [](torch::nn::Embedding& mine, HogwildThread& thread) {
                                for (int i = 0; i < kSteps; ++i) {
                                  add_to_row(mine, 2 * thread.index() + i % 2, thread);
                                }
                              });
  EXPECT_TRUE(torch::all(table->weight == kSteps / 2).item<bool>());
  EXPECT_EQ(result.updates, 2 * kSteps * 16);
  EXPECT_EQ(result.sampled, result.updates);
  EXPECT_EQ(result.lost, 0);
  EXPECT_EQ(result.steps, 2 * kSteps);
}

/// The counter sees a loss if there is one. (That the threads meet is up to the scheduler here;
/// LockFreeUpdates has tests in which they must.)
TEST(HogwildThreads, CountWhatTheyLoseOnOneRow) {
  constexpr int kSteps = 5000;
  torch::nn::Embedding table = zero_table();
  std::barrier<> meeting(2);
  const auto result = hogwild(table, zero_table, two_threads(1),
                              [&](torch::nn::Embedding& mine, HogwildThread& thread) {
                                meeting.arrive_and_wait();
                                for (int i = 0; i < kSteps; ++i) add_to_row(mine, 0, thread);
                              });
  const auto missing = 2 * kSteps * 16 - table->weight.sum().item<std::int64_t>();
  EXPECT_GE(missing, result.lost);
  EXPECT_EQ(missing > 0, result.lost > 0);
  EXPECT_EQ(result.lost_updates(), static_cast<double>(result.lost));
}

TEST(HogwildResults, ScaleTheSamplesUp) {
  EXPECT_EQ(HogwildResult{}.lost_updates(), 0);
  const HogwildResult result{.updates = 8'000'000, .sampled = 2000, .lost = 3};
  EXPECT_EQ(result.lost_updates(), 12'000);
}

TEST(HogwildThreads, TrainTogether) {
  RowsNet net = seeded_rows_net();
  Hogwild<RowsNet> threads(net, [] { return RowsNet(); },
                           {.optimizer = making_hogwild<optim::Adagrad>(optim::AdagradOptions(0.1)),
                            .threads = 2,
                            .oversubscribe = true});
  const double before = loss_of_batch(net, 1).item<double>();
  std::atomic<std::int64_t> next = 0;
  const auto result = threads.run([&](RowsNet& mine, HogwildThread& thread) {
    for (std::int64_t i; (i = next.fetch_add(1)) < 300;) {
      loss_of_batch(mine, i % 3).backward();
      thread.step();
    }
  });
  EXPECT_EQ(result.steps, 300);
  EXPECT_LT(loss_of_batch(net, 1).item<double>(), 0.7 * before);
}

TEST(HogwildThreads, EndWithTheFirstError) {
  RowsNet net;
  Hogwild<RowsNet> threads(
      net, [] { return RowsNet(); }, two_threads(0.1));
  std::atomic<int> aborted = 0;
  const auto fail = [&](RowsNet& mine, HogwildThread& thread) {
    if (thread.index() == 1) throw Exception(ErrorKind::corrupted, "a broken sample");
    try {
      for (;;) {
        loss_of_batch(mine, 0).backward();
        thread.step();
      }
    } catch (const Exception& error) {
      if (error.kind() == ErrorKind::aborted) ++aborted;
      throw;
    }
  };
  EXPECT_EQ(error_of([&] { threads.run(fail); }), "a broken sample");
  EXPECT_EQ(aborted, 1);
  const auto result =
      threads.run([](RowsNet&, HogwildThread& thread) { thread.step(); });  // No gradients.
  EXPECT_EQ(result.steps, 2);
  EXPECT_EQ(result.updates, 0);
}

std::string refusal(
    const HogwildOptions& options, RowsNet net = RowsNet(),
    const std::function<RowsNet()>& make = [] { return RowsNet(); }) {
  return error_of([&] { Hogwild<RowsNet>(net, make, options); });
}

TEST(HogwildThreads, RefuseOtherOptimizers) {
  const auto with = [](OptimizerFactory optimizer) {
    return refusal({.optimizer = std::move(optimizer), .threads = 1});
  };
  EXPECT_THAT(with(making_hogwild<optim::SGD>(plain_sgd(0.1).momentum(0.9))),
              HasSubstr("SGD with momentum 0.9 cannot"));
  EXPECT_THAT(with(make_adam), HasSubstr("torch::optim::Adam cannot"));
  EXPECT_THAT(with(making_hogwild<Lars>(LarsOptions(0.1))), HasSubstr("gradwire::Lars cannot"));
  EXPECT_THAT(with(making_hogwild<optim::Adagrad>(optim::AdagradOptions(0.1).lr_decay(0.2))),
              HasSubstr("Adagrad with lr_decay 0.2 cannot"));
  EXPECT_THAT(with(nullptr), HasSubstr("HogwildOptions::optimizer is missing"));
}

TEST(HogwildThreads, RefuseMoreThreadsThanCores) {
  HogwildOptions options = two_threads(0.1);
  EXPECT_EQ(HogwildCore::threads_of({}), usable_cores());
  options.oversubscribe = false;
  options.threads = usable_cores() + 1;
  EXPECT_THAT(refusal(options), testing::ContainsRegex("threads on [0-9]+ usable core"));
  options.threads = -1;
  EXPECT_THAT(refusal(options), HasSubstr("threads is -1"));
}

TEST(HogwildThreads, RefuseModulesThatCannotShare) {
  const HogwildOptions options = two_threads(0.1);
  RowsNet net;
  EXPECT_THAT(refusal(options, net, [&] { return net; }), HasSubstr("module of another thread"));
  EXPECT_THAT(refusal(options, net,
                      [] {
                        RowsNet other;
                        other->register_parameter("more", torch::zeros({1}));
                        return other;
                      }),
              HasSubstr("has 8 parameters, and the first one 7"));
  RowsNet wide;
  wide->to(torch::kFloat64);
  EXPECT_THAT(refusal(options, wide), HasSubstr("is Double; threads share contiguous float32"));
}

TEST(HogwildThreads, RefuseWeightDecayOfRows) {
  RowsNet net;
  Hogwild<RowsNet> threads(
      net, [] { return RowsNet(); },
      {.optimizer = making_hogwild<optim::SGD>(plain_sgd(0.1).weight_decay(0.1)), .threads = 1});
  EXPECT_THAT(error_of([&] {
                threads.run([](RowsNet& mine, HogwildThread& thread) {
                  loss_of_batch(mine, 0).backward();
                  thread.step();
                });
              }),
              HasSubstr("table.weight is sparse and it has weight_decay"));
}

}  // namespace
}  // namespace gradwire::test
