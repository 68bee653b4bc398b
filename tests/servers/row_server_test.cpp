#include "gradwire/servers/row_server.h"

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/base/error.h"
#include "gradwire/base/random.h"
#include "gradwire/servers/row_client.h"
#include "tests/support/error_of.h"
#include "tests/support/exchanging.h"
#include "tests/support/local_job.h"

/// Servers of rows and workers over real sockets.
namespace gradwire::servers::test {
namespace {

using gradwire::test::error_of;
using gradwire::test::LocalJob;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::size_t kWidth = 4;

RowLayout row_layout(int workers, int servers, std::int64_t staleness,
                     const std::string& optimizer = "sgd") {
  return {.placement = {.workers = workers, .servers = servers},
          .rows = {.rows = 1'000, .width = kWidth, .seed = 3, .optimizer = optimizer},
          .staleness = staleness};
}

/// Workers and servers that are threads of this process.
class RowJob {
 public:
  explicit RowJob(RowLayout layout)
      : layout_(std::move(layout)),
        job_(layout_.placement.ranks(), {.failure_domain = FailureDomain::pair}) {}

  /// Returns what each thread threw, "" for none: of the workers, then of the servers.
  std::vector<std::string> run(const std::function<void(Rank, RowClient&)>& work) {
    return run_bare([&](Rank worker, Communicator& pairs) {
      RowClient client(gradwire::test::shared(pairs), layout_);
      work(worker, client);
      client.leave();
    });
  }

  std::vector<std::string> run_bare(const std::function<void(Rank, Communicator&)>& work) {
    const Placement& placement = layout_.placement;
    std::vector<std::string> errors(static_cast<std::size_t>(placement.ranks()));
    warnings.resize(static_cast<std::size_t>(placement.servers));
    std::vector<std::thread> threads;
    for (Rank rank = 0; rank < placement.ranks(); ++rank) {
      threads.emplace_back([&, rank] {
        errors[static_cast<std::size_t>(rank)] = error_of([&] {
          if (rank < placement.workers) return work(rank, job_.on(rank));
          const int number = rank - placement.workers;
          RowServer server(
              gradwire::test::shared(job_.on(rank)), number, layout_, exact_square_roots,
              [&](const std::string& text) { warnings[static_cast<std::size_t>(number)] += text; });
          server.run();
        });
        if (errors[static_cast<std::size_t>(rank)] == "no error") {
          errors[static_cast<std::size_t>(rank)].clear();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    return errors;
  }

  std::vector<std::string> warnings;  ///< By server.

 private:
  RowLayout layout_;
  LocalJob job_;
};

/// A worker's batches.
std::vector<std::int64_t> row_batch(Rank worker, std::int64_t number) {
  Random random(
      mixed_seed({static_cast<std::uint64_t>(worker), static_cast<std::uint64_t>(number)}));
  std::vector<std::int64_t> ids;
  for (int i = 0; i < 20; ++i) ids.push_back(static_cast<std::int64_t>(random.below(60)));
  return ids;
}

struct OpenBatch {
  std::shared_ptr<const DistinctIds> ids;
  std::shared_ptr<std::vector<float>> rows;
  Work work;
};

OpenBatch look_up(RowClient& client, const std::vector<std::int64_t>& batch) {
  OpenBatch open{std::make_shared<DistinctIds>(distinct(batch, client.layout())), nullptr, {}};
  open.rows = std::make_shared<std::vector<float>>(open.ids->ids.size() * kWidth);
  open.work = client.look_up(open.ids, lend_floats(*open.rows, open.rows));
  return open;
}

/// A gradient that depends on the rows.
void push(RowClient& client, const OpenBatch& open) {
  const auto gradients = std::make_shared<std::vector<float>>(*open.rows);
  for (float& gradient : *gradients) gradient = 0.5F * gradient + 0.25F;
  client.update(open.ids, lend_floats(*gradients, gradients), 1);
}

void train(Rank worker, RowClient& client, std::int64_t batches) {
  std::deque<OpenBatch> open;
  for (std::int64_t next = 0, done = 0; done < batches; ++done) {
    for (; next < batches && client.open() <= client.layout().staleness; ++next) {
      open.push_back(look_up(client, row_batch(worker, next)));
    }
    open.front().work.wait();
    push(client, open.front());
    open.pop_front();
  }
}

std::vector<float> all_rows(RowClient& client) {
  std::vector<std::int64_t> ids(static_cast<std::size_t>(client.layout().rows.rows));
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int64_t>(i);
  const DistinctIds distinct_ids = distinct(ids, client.layout());
  std::vector<float> rows(ids.size() * kWidth), ordered(rows.size());
  client.read(distinct_ids, rows);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const auto place = static_cast<std::size_t>(distinct_ids.positions[i]);
    std::copy_n(rows.data() + place * kWidth, kWidth, ordered.data() + i * kWidth);
  }
  return ordered;
}

/// All rows after the training of `workers` workers.
std::vector<float> trained(const RowLayout& layout, RowReport* report = nullptr) {
  std::vector<std::vector<float>> rows(static_cast<std::size_t>(layout.placement.workers));
  RowJob job(layout);
  EXPECT_THAT(job.run([&](Rank worker, RowClient& client) {
    train(worker, client, 12);
    rows[static_cast<std::size_t>(worker)] = all_rows(client);
    if (worker == 0 && report != nullptr) *report = client.report();
  }),
              Each(""));
  for (const auto& each : rows) EXPECT_EQ(each, rows.front());
  return rows.front();
}

/// The same training without servers.
std::vector<float> trained_alone(const RowLayout& layout) {
  RowStore store(layout.rows);
  std::vector<std::vector<OpenBatch>> open;
  for (std::int64_t step = 0; step < 12; ++step) {
    std::vector<std::vector<std::int64_t>> ids;
    std::vector<std::vector<float>> gradients;
    for (Rank worker = 0; worker < layout.placement.workers; ++worker) {
      ids.push_back(distinct(row_batch(worker, step), layout).ids);
      std::ranges::sort(ids.back());
      std::vector<float> rows(ids.back().size() * kWidth);
      store.read(ids.back(), rows);
      for (float& value : rows) value = 0.5F * value + 0.25F;
      gradients.push_back(rows);
    }
    std::vector<std::int64_t> mean_ids;
    std::vector<float> mean;
    const std::vector<std::span<const std::int64_t>> id_spans(ids.begin(), ids.end());
    const std::vector<std::span<const float>> spans(gradients.begin(), gradients.end());
    mean_of_rows(id_spans, spans, kWidth, mean_ids, mean);
    store.step(mean_ids, mean);
  }
  std::vector<std::int64_t> ids(static_cast<std::size_t>(layout.rows.rows));
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int64_t>(i);
  std::vector<float> rows(ids.size() * kWidth);
  store.read(ids, rows);
  return rows;
}

TEST(RowServer, HasTheRowsOfSynchronousTrainingAtStalenessZero) {
  for (const std::string optimizer : {"sgd", "adagrad"}) {
    const auto expected = trained_alone(row_layout(3, 1, 0, optimizer));
    for (const int servers : {1, 2, 3}) {
      RowReport report;
      EXPECT_EQ(trained(row_layout(3, servers, 0, optimizer), &report), expected);
      EXPECT_EQ(report.staleness.max(), 0);
      EXPECT_EQ(report.max_permits, 1);
      EXPECT_EQ(report.made, 60) << "of 1000";
      EXPECT_EQ(report.steps, 12);
    }
  }
}

TEST(RowServer, HasTheSameRowsInEveryRunWhenStale) {
  RowReport report;
  const auto first = trained(row_layout(3, 2, 4, "adagrad"), &report);
  EXPECT_EQ(report.max_permits, 5);
  EXPECT_EQ(report.staleness.max(), 4);
  EXPECT_EQ(trained(row_layout(3, 1, 4, "adagrad")), first);
  EXPECT_NE(trained(row_layout(3, 1, 0, "adagrad")), first);
}

TEST(RowServer, GivesAndTakesAllMadeRows) {
  const RowLayout layout = row_layout(1, 2, 0, "adagrad");
  MadeRows made;
  std::vector<float> before, after;
  EXPECT_THAT(RowJob(layout).run([&](Rank worker, RowClient& client) {
    train(worker, client, 5);
    before = all_rows(client);
    made = client.made();
    train(worker, client, 5);
    after = all_rows(client);
  }),
              Each(""));
  EXPECT_EQ(made.values.size(), made.ids.size() * kWidth);
  EXPECT_NE(before, after);
  const RowLayout other = row_layout(1, 3, 0, "adagrad");
  EXPECT_THAT(RowJob(other).run([&](Rank worker, RowClient& client) {
    client.put(made);
    EXPECT_EQ(all_rows(client), before);
    train(worker, client, 5);
    EXPECT_EQ(all_rows(client), after) << "states are there, too";
    made.states.clear();
    EXPECT_THAT(error_of([&] { client.put(made); }), HasSubstr("0 states"));
  }),
              Each(""));
}

TEST(RowServer, GoesOnWithoutALostWorker) {
  RowJob job(row_layout(3, 2, 1));
  const auto errors = job.run_bare([&](Rank worker, Communicator& pairs) {
    RowClient client(gradwire::test::shared(pairs), row_layout(3, 2, 1));
    if (worker == 1) {
      look_up(client, row_batch(worker, 0)).work.wait();
      pairs.abort("it has failed");
      return;
    }
    train(worker, client, 12);
    EXPECT_EQ(client.report().max_permits, 2);
    client.leave();
  });
  EXPECT_THAT(errors, Each(""));
  EXPECT_THAT(job.warnings, Each(HasSubstr("it has failed")));
}

TEST(RowServer, RefusesAWorkerWithoutPermits) {
  EXPECT_THAT(RowJob(row_layout(1, 1, 1)).run([&](Rank worker, RowClient& client) {
    std::vector<OpenBatch> open;
    for (int i = 0; i < 2; ++i) open.push_back(look_up(client, row_batch(worker, i)));
    EXPECT_THAT(error_of([&] { look_up(client, row_batch(worker, 2)); }),
                HasSubstr("with staleness 1 there are 2 permits"));
    for (const OpenBatch& each : open) {
      each.work.wait();
      push(client, each);
    }
  }),
              Each(""));
}

/// Worker 1 sends this after hello; worker 0 trains.
std::string refusal_of(RowRequest request, std::vector<std::int64_t> ids) {
  RowJob job(row_layout(2, 1, 0));
  std::string refusal;
  const auto errors = job.run_bare([&](Rank worker, Communicator& pairs) {
    RowClient client(gradwire::test::shared(pairs), row_layout(2, 1, 0));
    if (worker == 1) {
      const Rank server = 2;
      refusal = error_of([&] {
        pairs.send(lend_message(request), server, kRowRequestTag).wait();
        if (!ids.empty()) pairs.send(lend_ids(ids), server, kRowIdsTag).wait();
        RowReply reply;
        pairs.recv(lend_message(reply), server, kRowReplyTag).wait();
      });
      return;
    }
    train(worker, client, 4);
    client.leave();
  });
  EXPECT_THAT(errors, Each(""));
  return refusal;
}

TEST(RowServer, RefusesAWorkerThatSendsNonsenseAlone) {
  using Kind = RowRequest::Kind;
  EXPECT_THAT(refusal_of({.kind = Kind::hello}, {}), HasSubstr("does not begin with one hello"));
  EXPECT_THAT(refusal_of({.kind = static_cast<Kind>(77)}, {}), HasSubstr("unknown kind 77"));
  EXPECT_THAT(refusal_of({.kind = Kind::look_up, .count = 1LL << 60}, {}),
              HasSubstr("this server has 1000"));
  EXPECT_THAT(refusal_of({.kind = Kind::read, .count = -1}, {}), HasSubstr("names -1 rows"));
  EXPECT_THAT(refusal_of({.kind = Kind::look_up, .count = 2}, {5, 5}),
              HasSubstr("sends id 5 after 5"));
  EXPECT_THAT(refusal_of({.kind = Kind::look_up, .count = 1}, {1'000}),
              HasSubstr("sends id 1000 after -1"));
  EXPECT_THAT(refusal_of({.kind = Kind::look_up, .clock = 3, .count = 1}, {1}),
              HasSubstr("looks up batch 3; its next is 0"));
}

TEST(RowServer, RefusesAWorkerWithAnotherTable) {
  RowJob job(row_layout(2, 1, 0));
  const auto errors = job.run_bare([&](Rank worker, Communicator& pairs) {
    RowClient client(gradwire::test::shared(pairs), row_layout(2, 1, worker));
    train(worker, client, 2);
    client.leave();
  });
  EXPECT_THAT(errors, ElementsAre("", HasSubstr("has another table of rows"), ""));
}

TEST(RowServer, SurvivesRandomRequests) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    RowJob job(row_layout(2, 1, 0));
    const auto errors = job.run_bare([&](Rank worker, Communicator& pairs) {
      RowClient client(gradwire::test::shared(pairs), row_layout(2, 1, 0));
      if (worker == 1) {
        Random random(seed);
        error_of([&] {
          for (int i = 0; i < 50; ++i) {
            RowRequest request;
            const bool small = random.one_in(2);
            request.kind = static_cast<RowRequest::Kind>(small ? random.below(8) : random.next());
            request.clock = static_cast<std::int64_t>(random.next());
            request.count = static_cast<std::int64_t>(random.next());
            pairs.send(lend_message(request), 2, kRowRequestTag).wait();
          }
        });
        pairs.abort_with(2, "done");
        return;
      }
      train(worker, client, 4);
      client.leave();
    });
    EXPECT_THAT(errors, Each("")) << "seed " << seed;
  }
}

TEST(RowStore, MakesRowsAtTheirFirstStep) {
  RowStore store({.rows = 1'000'000, .width = 2, .seed = 1});
  std::vector<float> rows(4), initial(2);
  const std::vector<std::int64_t> ids{999'999, 0};
  store.read(ids, rows);
  EXPECT_TRUE(store.ids().empty());
  initial_row(1, 999'999, initial);
  EXPECT_EQ(rows[0], initial[0]);
  store.step(ids, std::vector<float>{1, 1, 1, 1});
  EXPECT_THAT(store.ids(), ElementsAre(999'999, 0));
  store.read(ids, rows);
  EXPECT_FLOAT_EQ(rows[0], initial[0] - 0.05F);
  EXPECT_GE(store.bytes(), 2 * 2 * sizeof(float) + 2 * 32);
}

TEST(RowStore, RefusesOptionsByName) {
  EXPECT_THAT(error_of([] { RowStore({.rows = 0, .width = 2}); }), HasSubstr("has 0 rows"));
  EXPECT_THAT(error_of([] { RowStore({.rows = 1, .width = 0}); }), HasSubstr("width 0"));
  EXPECT_THAT(error_of([] { RowStore({.rows = 1, .width = 1, .optimizer = "adam"}); }),
              HasSubstr("optimizer \"adam\""));
}

TEST(DistinctIds, AreByServerThenInOrder) {
  const RowLayout layout = row_layout(1, 3, 0);
  const std::vector<std::int64_t> batch{7, 3, 6, 7, 4, 3};
  const DistinctIds ids = distinct(batch, layout);
  EXPECT_THAT(ids.ids, ElementsAre(3, 6, 4, 7));
  EXPECT_THAT(ids.begins, ElementsAre(0, 2, 4, 4));
  EXPECT_THAT(ids.positions, ElementsAre(3, 0, 1, 3, 2, 0));
  EXPECT_THAT(distinct({}, layout).begins, ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(error_of([&] { distinct(std::vector<std::int64_t>{1'000}, layout); }),
              HasSubstr("id 1000 is not one of an embedding of 1000 rows"));
}

TEST(RowReport, RefusesDamagedOnes) {
  RowReport report{.made = 1, .bytes = 2, .steps = 3, .max_permits = 4, .staleness = {}};
  report.staleness.add(2, 7);
  EXPECT_EQ(encode(decode_row_report(encode(report))), encode(report));
  EXPECT_THROW(decode_row_report(std::vector<std::int64_t>{1, 2, 3}), Exception);
}

}  // namespace
}  // namespace gradwire::servers::test
