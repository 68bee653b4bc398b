#include "gradwire/train/federated/federated_client.h"

#include <algorithm>
#include <array>
#include <latch>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/base/log.h"
#include "gradwire/federated/remote/federated_server.h"
#include "gradwire/federated/remote/tensor_order.h"
#include "gradwire/train/federated/served_model.h"
#include "tests/support/error_of.h"
#include "tests/support/loopback.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/torch/loopback.h"
#include "tests/train/federated/small_federation.h"

namespace gradwire {
namespace {

using namespace std::chrono_literals;
using test::kNetwork;
using test::linear;
using test::points;
using test::sgd;
using test::unequal;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr int kServedClients = 3;

FederationPlan served_plan() {
  FederationPlan plan{.rounds = 4};
  plan.round = {.ask = kServedClients, .use = kServedClients, .least = 2, .gather = 20s};
  plan.local.epochs = 2;
  plan.local.batch_size = 4;
  plan.local.optimizer = sgd(0.1);
  plan.server.optimizer = sgd(1);
  return plan;
}

/// The samples of one of the clients.
HeldOut only(const HeldOut& clients, int client) {
  HeldOut own;
  own.train.add(clients.train[client]);
  own.held_out.add(clients.held_out[client]);
  return own;
}

/// A server on a thread, and clients on theirs, over the loopback.
class ServedRounds {
 public:
  explicit ServedRounds(const FederationPlan& plan) : plan_(plan) {
    set_log_sink([](std::string_view) {});
    for (int i = 0; i < kServedClients; ++i) {
      const auto identity = enrolment_.enrol(fmt::format("client-{}", i), "");
      folder_.write(fmt::format("{}.json", i), federated::to_json(identity), 0600);
    }
  }
  ~ServedRounds() { set_log_sink({}); }

  FederatedClientOptions client_options(int client) {
    return {.identity = folder_ / fmt::format("{}.json", client),
            .server = address_,
            .give_up_seconds = 20};
  }

  /// Until the model has all rounds. `adapt` changes the options of a client.
  void run(const std::function<void(int, FederatedClientOptions&)>& adapt = nullptr,
           bool resumes = false) {
    serve(resumes);
    run_clients(adapt);
    serving_.join();
  }

  /// Serves on a thread, until the model has all rounds, or stop_serving().
  void serve(bool resumes = false) {
    const TrainableModule first = linear();
    model_ = std::make_unique<ServedModel>(
        plan_, federated_tensors(*first.module),
        ServedModel::Options{.folder = folder_.path(),
                             .optimizer = R"({"name": "sgd", "learning_rate": 0.1})",
                             .on_round = [&](const auto& round) { rounds.push_back(round); }});
    if (resumes) model_->resume();
    auto listener = net::listen_on(test::any_loopback_port());
    ASSERT_TRUE(listener);
    address_ = net::local_address(*listener).to_string();
    stop_ = *kNetwork.make_pair();
    server_ = std::make_unique<federated::FederatedServer>(
        kNetwork, std::move(*listener), enrolment_, *model_,
        federated::FederatedServer::Options{.rounds = {.policy = policy(),
                                                       .first_round = model_->first_round(),
                                                       .seed = plan_.seed,
                                                       .ledger = model_->ledger(),
                                                       .least_pause = 1ms,
                                                       .expected_within = 5s}});
    serving_ = std::thread([&] {
      const Status done = server_->run(stop_.first);
      EXPECT_TRUE(done) << done.error().message;
    });
  }
  void stop_serving() {
    stop_.second.close();
    serving_.join();
    server_.reset();  // With the listener.
  }

  const ServedModel& model() const { return *model_; }
  std::filesystem::path operator/(const std::string& name) const { return folder_ / name; }
  FederationPlan& plan() { return plan_; }

  std::function<void(int client, TrainableModule& module)> change_module;
  int ranks_of_last = 1;  ///< Ranks of the last client's job.
  std::vector<FederationRound> rounds;
  std::vector<ClientRound> client_rounds[kServedClients];
  std::int64_t counted[kServedClients] = {};
  std::int64_t counted_by_follower = 0;

 private:
  federated::RoundPolicy policy() const {
    federated::RoundPolicy policy = plan_.round;
    policy.update_bits = 32;
    return policy;
  }

  void run_clients(const std::function<void(int, FederatedClientOptions&)>& adapt) {
    constexpr int kLast = kServedClients - 1;
    std::vector<TrainableModule> modules;  // Those of the last client's further ranks at the end.
    for (int i = 0; i < kLast + ranks_of_last; ++i) {
      modules.push_back(linear());
      if (change_module) change_module(std::min(i, kLast), modules.back());
    }
    const DataSet data = points(330);
    const auto run_client = [&](int i, const ProcessGroup& group) {
      FederatedClientOptions options = client_options(i);
      options.group = group;
      if (adapt) adapt(i, options);
      const bool leads = !group || group->getRank() == 0;
      FederatedClient client(options);
      const std::int64_t often =
          client.run(modules[static_cast<std::size_t>(group ? i + group->getRank() : i)], data,
                     only(unequal(kServedClients, true), i), [&](const ClientRound& round) {
                       EXPECT_TRUE(leads);
                       client_rounds[i].push_back(round);
                     });
      if (leads) counted[i] = often;
      if (!leads) counted_by_follower = often;
    };
    std::vector<std::thread> threads;
    for (int i = 0; i < kServedClients; ++i) {
      threads.emplace_back([&, i] {
        if (i < kLast || ranks_of_last == 1) return run_client(i, {});
        test::run_on_loopback(ranks_of_last,
                              [&](const ProcessGroup& group) { run_client(i, group); });
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  test::TemporaryFolder folder_;
  FederationPlan plan_;
  federated::Enrolment enrolment_{folder_ / "key", federated::Enrolment::Missing::created};
  std::unique_ptr<ServedModel> model_;
  std::unique_ptr<federated::FederatedServer> server_;
  std::string address_;
  std::pair<net::Socket, net::Socket> stop_;
  std::thread serving_;
};

std::vector<float> simulated(const FederationPlan& plan) {
  Federation federation(plan, points(330), unequal(kServedClients, true), linear);
  federation.run();
  return test::values_of(federation);
}

std::vector<float> served(const ServedModel& model) {
  return {model.model().values().begin(), model.model().values().end()};
}

TEST(FederatedClient, ReachesTheBitsOfASimulation) {
  FederationPlan compressed = served_plan();
  compressed.sends_bf16 = true;
  compressed.server.update = {.bits = 8, .rotate = true, .keep = 0.75};
  compressed.proximal = 0.1;
  compressed.adapts_proximal = true;
  compressed.partial = federated::Partial::normalize;
  for (const FederationPlan& plan : {served_plan(), compressed}) {
    ServedRounds federation(plan);
    federation.run();
    EXPECT_EQ(served(federation.model()), simulated(plan));
    EXPECT_THAT(federation.counted, ElementsAre(4, 4, 4));
    for (const auto& rounds : federation.client_rounds) {
      ASSERT_EQ(rounds.size(), 4u);
      EXPECT_LT(rounds.back().training_loss, rounds.front().training_loss);
      EXPECT_EQ(rounds.back().steps, rounds.back().all_steps);
    }
    ASSERT_EQ(federation.rounds.size(), 4u);
    EXPECT_EQ(federation.rounds.back().metrics.evaluated, 6);
    // Differences are shorter than the model.
    EXPECT_LT(federation.rounds.back().down_bytes, federation.rounds.front().down_bytes);
  }
}

TEST(FederatedClient, MayBeAJobOfSeveralRanks) {
  ServedRounds federation(served_plan());
  federation.ranks_of_last = 2;
  federation.run();
  EXPECT_THAT(federation.counted, ElementsAre(4, 4, 4));
  EXPECT_EQ(federation.counted_by_follower, 4);
  EXPECT_EQ(federation.client_rounds[2].back().steps, federation.client_rounds[2].back().all_steps);
  const std::vector<float> found = served(federation.model()), expected = simulated(served_plan());
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-5);
}

TEST(FederatedClient, AJobOfSeveralRanksEndsItsTrainingTogether) {
  FederationPlan plan = served_plan();
  plan.round.window = 1s;
  ServedRounds federation(plan);
  federation.ranks_of_last = 2;
  federation.run([](int client, FederatedClientOptions& options) {
    if (client == 2) options.limits.round_seconds = 1e-9;
  });
  EXPECT_THAT(federation.counted, ElementsAre(4, 4, 0));
  ASSERT_FALSE(federation.client_rounds[2].empty());
  EXPECT_THAT(federation.client_rounds[2].front().reason, HasSubstr("limit of compute"));
}

/// The error of each rank of a client's job. No rank leaves the group before all have failed.
std::vector<std::string> errors_of_job(const FederatedClientOptions& options, int ranks,
                                       const std::function<TrainableModule()>& make = linear) {
  std::vector<TrainableModule> modules;
  for (int rank = 0; rank < ranks; ++rank) modules.push_back(make());
  std::vector<std::string> errors(static_cast<std::size_t>(ranks));
  const DataSet data = points(330);
  std::latch all_failed(ranks);
  const auto run_rank = [&](const ProcessGroup& group) {
    const auto rank = static_cast<std::size_t>(group->getRank());
    errors[rank] = test::error_of([&] {
      FederatedClientOptions own = options;
      own.group = group;
      FederatedClient(own).run(modules[rank], data, only(unequal(1, true), 0));
    });
    all_failed.arrive_and_wait();
  };
  test::run_on_loopback(ranks, run_rank, {.operation_timeout = 20s});
  return errors;
}

TEST(FederatedClient, AJobOfSeveralRanksEndsWithTheErrorOfRank0) {
  ServedRounds federation(served_plan());
  federation.serve();
  const auto wider = [] {
    torch::nn::Sequential net(torch::nn::Linear(test::kFeatures, 9), torch::nn::Tanh(),
                              torch::nn::Linear(9, test::kClasses));
    TrainableModule made = linear();
    made.module = net.ptr();
    return made;
  };
  EXPECT_THAT(errors_of_job(federation.client_options(0), 3, wider),
              Each(HasSubstr("tensor 0.weight has shape (8, 12) at the server, and (9, 12)")));

  const test::TemporaryFolder folder;
  federated::Enrolment other(folder / "key", federated::Enrolment::Missing::created);
  FederatedClientOptions stranger = federation.client_options(0);
  stranger.identity = folder / "stranger.json";
  EXPECT_THAT(errors_of_job(stranger, 2), Each(HasSubstr("stranger.json")));
  folder.write("stranger.json", federated::to_json(other.enrol("stranger", "")), 0600);
  EXPECT_THAT(errors_of_job(stranger, 2), Each(HasSubstr("does not know the identity stranger")));

  federation.stop_serving();
  FederatedClientOptions late = federation.client_options(0);
  late.give_up_seconds = 0.1;
  EXPECT_THAT(errors_of_job(late, 2), Each(HasSubstr("cannot connect to " + late.server)));
}

TEST(FederatedClient, LeavesARoundWhoseMaskedSumHasTooFewContributors) {
  FederationPlan plan = served_plan();
  plan.round = {.ask = 2, .use = 2, .least = 2, .gather = 20s};
  plan.round.secure = federated::SecureRound{.policy = {.neighbours = 1, .threshold = 1}};
  plan.server.update.keep = 0.5;
  ServedRounds federation(plan);
  federation.serve();
  const DataSet data = points(330);
  std::vector<std::thread> threads;
  std::array<std::optional<ClientRound>, 2> left;
  for (std::size_t i = 0; i < left.size(); ++i) {
    threads.emplace_back([&, i, module = linear()] {
      FederatedClientOptions options = federation.client_options(static_cast<int>(i));
      options.secure.least_threshold = 1;  // Not what makes it leave.
      FederatedClient client(options);
      client.run(module, data, only(unequal(2, true), static_cast<int>(i)),
                 [&](const ClientRound& round) {
                   left[i] = round;
                   client.stop();
                 });
    });
  }
  for (std::thread& thread : threads) thread.join();
  federation.stop_serving();
  for (const auto& round : left) {
    ASSERT_TRUE(round);
    EXPECT_FALSE(round->counted);
    EXPECT_EQ(round->steps, round->all_steps);
    EXPECT_THAT(round->reason, HasSubstr("update.mask is 0.5, and with a threshold of 1 an element "
                                         "may have 2 contributors"));
  }
  ASSERT_FALSE(federation.rounds.empty());
  for (const FederationRound& round : federation.rounds) {
    EXPECT_TRUE(round.record.is_abandoned);
    EXPECT_EQ(round.record.used, 0);
  }
}

/// Each setting of secure aggregation requires it.
TEST(FederatedClient, LeavesARoundWhoseServerCouldReadItsUpdate) {
  FederationPlan plan = served_plan();
  plan.round = {.ask = 1, .use = 1, .least = 1, .gather = 20s};
  ServedRounds federation(plan);
  federation.serve();
  const DataSet data = points(330);
  const std::array<SecureUploads, 3> demands{
      SecureUploads{.required = true}, {.least_threshold = 2}, {.active = true}};
  for (std::size_t i = 0; i < demands.size(); ++i) {
    FederatedClientOptions options = federation.client_options(static_cast<int>(i));
    options.secure = demands[i];
    FederatedClient client(options);
    std::optional<ClientRound> left;
    client.run(linear(), data, only(unequal(3, true), static_cast<int>(i)),
               [&](const ClientRound& round) {
                 left = round;
                 client.stop();
               });
    ASSERT_TRUE(left) << i;
    EXPECT_THAT(left->reason, HasSubstr("asks for an update that it could read")) << i;
  }
  federation.stop_serving();
}

TEST(FederatedClient, GoesOnFromACheckpointWithTheSameRounds) {
  const FederationPlan plan = served_plan();
  ServedRounds federation(plan);
  federation.plan().rounds = 2;
  federation.run();
  federation.plan().rounds = plan.rounds;
  federation.run(nullptr, true);
  EXPECT_EQ(served(federation.model()), simulated(plan));
  EXPECT_EQ(federation.rounds.back().record.number, 4);
  for (const auto& [id, record] : federation.model().ledger()) EXPECT_EQ(record.counted, 4);
}

TEST(FederatedClient, LeavesAtItsLimitAndTheOthersGoOn) {
  FederationPlan plan = served_plan();
  plan.round.window = 1s;  // The next round is not before, for a client that leaves.
  ServedRounds federation(plan);
  federation.run([](int client, FederatedClientOptions& options) {
    if (client == 1) options.limits.round_seconds = 1e-9;
  });
  EXPECT_THAT(federation.counted, ElementsAre(4, 0, 4));
  ASSERT_FALSE(federation.client_rounds[1].empty());
  EXPECT_THAT(federation.client_rounds[1].front().reason, HasSubstr("limit of compute"));
  EXPECT_EQ(federation.rounds.front().record.used, 2);
  EXPECT_FALSE(federation.rounds.front().record.is_abandoned);
}

TEST(FederatedClient, AnUnfinishedClientCountsOrIsDroppedAsThePlanSays) {
  for (const auto partial : {federated::Partial::count, federated::Partial::drop}) {
    FederationPlan plan = served_plan();
    plan.rounds = 1;
    plan.partial = partial;
    ServedRounds federation(plan);
    federation.change_module = [](int client, TrainableModule& module) {
      if (client != 0) return;
      module.loss = [loss = module.loss](const torch::Tensor& outputs,
                                         const torch::Tensor& targets) {
        if (torch::GradMode::is_enabled()) kNetwork.pause(1100ms);  // A slow device.
        return loss(outputs, targets);
      };
    };
    federation.run([](int client, FederatedClientOptions& options) {
      if (client == 0) options.limits.round_seconds = 1;
    });
    const bool counts = partial == federated::Partial::count;
    EXPECT_THAT(federation.counted, ElementsAre(counts ? 1 : 0, 1, 1));
    ASSERT_EQ(federation.client_rounds[0].size(), 1u);
    EXPECT_EQ(federation.client_rounds[0][0].steps, 1);
    EXPECT_EQ(federation.client_rounds[0][0].all_steps, 4);
    EXPECT_EQ(federation.rounds[0].metrics.clients, counts ? 3 : 2);
  }
}

TEST(FederatedClient, WhoTrainsToTheEndOfTheWindowCounts) {
  FederationPlan plan = served_plan();
  plan.rounds = 1;
  plan.round.window = 2s;
  plan.local.epochs = 1'000'000;
  ServedRounds federation(plan);
  federation.run();
  EXPECT_THAT(federation.counted, ElementsAre(1, 1, 1));
  for (const auto& rounds : federation.client_rounds) {
    ASSERT_EQ(rounds.size(), 1u);
    EXPECT_LT(rounds.front().steps, rounds.front().all_steps);
  }
}

TEST(FederatedClient, RefusesAModelOfOtherTensors) {
  using federated::ModelDescription;
  const ModelDescription description{.tensors = {{"0.weight", {8, 12}}, {"0.bias", {9}}},
                                     .configuration = "{}"};
  const std::vector<ModelDescription::Shape> own{{"0.weight", {8, 12}}, {"0.bias", {8}}};
  EXPECT_THAT(test::error_of([&] { federated::TensorOrder(own, description); }),
              HasSubstr("tensor 0.bias has shape (9) at the server, and (8) in the module"));
}

}  // namespace
}  // namespace gradwire
