#include "gradwire/host/servers/served_embedding.h"

#include <functional>
#include <memory>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/base/error.h"
#include "tests/support/torch/thread_group.h"

/// Rows on servers beside workers, as threads of this process over real sockets.
namespace gradwire::test {
namespace {

using testing::HasSubstr;

constexpr std::int64_t kTableRows = 40;

ServedEmbeddingOptions small_table(const std::string& optimizer, std::int64_t staleness = 0) {
  return {.rows = kTableRows,
          .width = 16,
          .staleness = staleness,
          .seed = 5,
          .optimizer = optimizer,
          .learning_rate = 0.1};
}

/// Ids of a worker's batch, 6 x 2.
torch::Tensor table_ids(int worker, int batch, bool repeated) {
  auto generator = at::detail::createCPUGenerator(static_cast<std::uint64_t>(100 * worker + batch));
  const auto drawn = repeated
                         ? torch::randint(0, 15, {12}, generator, torch::kInt64)
                         : torch::randperm(kTableRows, generator, torch::kInt64).narrow(0, 0, 12);
  return drawn.view({6, 2});
}

torch::Tensor loss_of_rows(const torch::Tensor& rows) {
  const auto weights = torch::arange(rows.numel(), torch::kFloat32).view(rows.sizes()).sin();
  return (rows * weights + 0.3 * rows.pow(2)).sum();
}

struct TableSetting {
  std::string name, optimizer;
  bool repeated = false;
};

class ServedEmbeddingEquals : public testing::TestWithParam<TableSetting> {};
INSTANTIATE_TEST_SUITE_P(SparseEmbedding, ServedEmbeddingEquals,
                         testing::Values(TableSetting{"Sgd", "sgd"},
                                         TableSetting{"SgdOfEqualIds", "sgd", true},
                                         TableSetting{"Adagrad", "adagrad"},
                                         TableSetting{"AdagradOfEqualIds", "adagrad", true}),
                         [](const auto& given) { return given.param.name; });

void PrintTo(const TableSetting& setting, std::ostream* out) {
  *out << setting.name;
}

TEST_P(ServedEmbeddingEquals, BitForBitWithOneWorkerAtStalenessZero) {
  const TableSetting& setting = GetParam();
  run_on_threads(1, [&](const ProcessGroup& group) {
    ServedEmbedding table(group, small_table(setting.optimizer));
    torch::nn::Embedding expected = torch::nn::Embedding::from_pretrained(
        table.gather(), torch::nn::EmbeddingFromPretrainedOptions().freeze(false).sparse(true));
    std::unique_ptr<torch::optim::Optimizer> optimizer;
    if (setting.optimizer == "sgd") {
      optimizer = std::make_unique<torch::optim::SGD>(expected->parameters(), 0.1);
    } else {
      optimizer = std::make_unique<torch::optim::Adagrad>(expected->parameters(),
                                                          torch::optim::AdagradOptions(0.1));
    }
    for (int batch = 0; batch < 30; ++batch) {
      const torch::Tensor ids = table_ids(0, batch, setting.repeated);
      const torch::Tensor rows = table(ids), expected_rows = expected(ids);
      ASSERT_TRUE(rows.equal(expected_rows)) << "batch " << batch;
      loss_of_rows(rows).backward();
      table.step();
      optimizer->zero_grad();
      loss_of_rows(expected_rows).backward();
      // Gradients of equal ids are added, which SGD would step one by one.
      expected->weight.mutable_grad() = expected->weight.grad().coalesce();
      optimizer->step();
    }
    EXPECT_TRUE(table.gather().equal(expected->weight));
    EXPECT_EQ(table.report().max_staleness, 0);
  });
}

TEST(ServedEmbedding, IsSynchronousTrainingOfAllWorkersAtStalenessZero) {
  torch::nn::Embedding alone(kTableRows, 16);
  torch::optim::SGD optimizer(alone->parameters(), 0.1);
  torch::Tensor served;
  run_on_threads(3, [&](const ProcessGroup& group) {
    ServedEmbedding table(group, small_table("sgd"));
    const int rank = group->getRank();
    const torch::Tensor first = table.gather();
    if (rank == 0) alone->weight.set_data(first.clone());
    sum_over_ranks(*group, {1});
    for (int batch = 0; batch < 10; ++batch) {
      loss_of_rows(table(table_ids(rank, batch, true))).backward();
      table.step();
    }
    const torch::Tensor last = table.gather();
    if (rank == 0) served = last;
  });
  for (int batch = 0; batch < 10; ++batch) {
    optimizer.zero_grad();
    for (int rank = 0; rank < 3; ++rank) {
      (loss_of_rows(alone->forward(table_ids(rank, batch, true))) / 3).backward();
    }
    optimizer.step();
  }
  EXPECT_TRUE(served.allclose(alone->weight, 1e-5, 1e-6));
}

/// The table after stale training of three workers, on as many servers.
torch::Tensor trained_stale(int servers) {
  torch::Tensor trained;
  run_on_threads(3, [&](const ProcessGroup& group) {
    ServedEmbeddingOptions options = small_table("adagrad", 2);
    options.servers = servers;
    ServedEmbedding table(group, options);
    const int rank = group->getRank();
    const auto ids = [&](int batch) { return table_ids(rank, batch, true); };
    for (int batch = 0, next = 0; batch < 20; ++batch) {
      for (; table.free_permits() > 0 && next < 20; ++next) table.prefetch(ids(next));
      loss_of_rows(table(ids(batch))).backward();
      table.step();
    }
    table.synchronize();
    const ServedEmbeddingReport report = table.report();
    EXPECT_EQ(report.max_permits, 3);
    EXPECT_EQ(report.max_staleness, 2);
    EXPECT_EQ(report.steps, 20);
    EXPECT_EQ(report.made, 15) << "ids that were drawn";
    const torch::Tensor all = table.gather();
    if (rank == 0) trained = all;
  });
  return trained;
}

TEST(ServedEmbedding, RepeatsBitForBitWhenStale) {
  const torch::Tensor first = trained_stale(1);
  EXPECT_TRUE(trained_stale(1).equal(first));
  EXPECT_TRUE(trained_stale(0).equal(first));
}

TEST(ServedEmbedding, SavesAndLoadsItsRows) {
  ServedRows saved;
  torch::Tensor expected;
  run_on_threads(1, [&](const ProcessGroup& group) {
    ServedEmbedding table(group, small_table("adagrad"));
    for (int batch = 0; batch < 10; ++batch) {
      if (batch == 5) saved = table.made();
      loss_of_rows(table(table_ids(0, batch, true))).backward();
      table.step();
    }
    expected = table.gather();
  });
  EXPECT_GT(saved.ids.numel(), 10);
  EXPECT_LE(saved.ids.numel(), 15);
  run_on_threads(2, [&](const ProcessGroup& group) {
    ServedEmbedding table(group, small_table("adagrad"));
    table.load(saved);
    for (int batch = 5; batch < 10; ++batch) {
      const torch::Tensor rows = table(table_ids(0, batch, true));  // The same on both workers.
      loss_of_rows(rows).backward();
      table.step();
    }
    EXPECT_TRUE(table.gather().equal(expected));
  });
}

TEST(ServedEmbedding, GoesOnWithABatchThatHasNoGradients) {
  run_on_threads(2, [&](const ProcessGroup& group) {
    ServedEmbedding table(group, small_table("sgd"));
    const torch::Tensor before = table.gather();
    const torch::Tensor rows = table(table_ids(0, 0, false));
    if (group->getRank() == 0) loss_of_rows(rows).backward();
    table.step();
    EXPECT_FALSE(table.gather().equal(before));
    const torch::NoGradGuard no_grad;
    EXPECT_EQ(table(table_ids(0, 1, false)).sizes(), (at::IntArrayRef{6, 2, 16}));
    EXPECT_EQ(table.free_permits(), 1) << "a read needs none";
  });
}

TEST(ServedEmbedding, RefusesWrongCalls) {
  const auto error = [](const std::function<void()>& action) {
    try {
      action();
    } catch (const Exception& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  run_on_threads(1, [&](const ProcessGroup& group) {
    EXPECT_THAT(error([&] { ServedEmbedding(nullptr, small_table("sgd")); }),
                HasSubstr("no process group"));
    EXPECT_THAT(error([&] { ServedEmbedding(group, small_table("adam")); }),
                HasSubstr("optimizer \"adam\""));
    ServedEmbedding table(group, small_table("sgd", 1));
    EXPECT_THAT(error([&] { table.step(); }), HasSubstr("step() without a batch"));
    EXPECT_THAT(error([&] { table(torch::zeros({2})); }), HasSubstr("int64"));
    EXPECT_THAT(error([&] { table(torch::tensor({kTableRows}, torch::kInt64)); }),
                HasSubstr("id 40 is not one of an embedding of 40 rows"));
    table.prefetch(table_ids(0, 0, false));
    table.prefetch(table_ids(0, 1, false));
    EXPECT_THAT(error([&] { table.prefetch(table_ids(0, 2, false)); }), HasSubstr("2 permits"));
    EXPECT_THAT(error([&] { table(table_ids(0, 1, false)); }), HasSubstr("prefetched next"));
    const auto rows = table(table_ids(0, 0, false));
    EXPECT_THAT(error([&] { table(table_ids(0, 1, false)); }), HasSubstr("call step()"));
  });
}

}  // namespace
}  // namespace gradwire::test
