#include <csignal>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gradwire/train/checkpoint/safetensors.h"
#include "gradwire/train/federated/federated_client.h"
#include "tests/cli/launched.h"
#include "tests/support/idx_files.h"
#include "tests/support/page_data.h"
#include "tests/support/temporary_folder.h"
#include "tests/train/federated/small_federation.h"

/// `gradwire federate` as processes.
namespace gradwire::test {
namespace {

using nlohmann::json;
using testing::Gt;
using testing::HasSubstr;
using testing::Not;

constexpr int kProcesses = 3;

struct FederateCommand : testing::Test {
  FederateCommand() {
    write_image_data(folder.path(), 120, 30);
    write_file(folder / "federated.json", R"({
      "model": {"name": "mlp", "hidden": 16}, "rounds": 3, "download": "bf16",
      "partition": {"clients": 3, "held_out": 0.1},
      "round": {"ask": 3, "use": 3, "least": 3},
      "local": {"epochs": 2, "learning_rate": 0.05}, "update": {"bits": 8, "rotate": true}})");
    for (int i = 1; i <= kProcesses; ++i) {
      const Outcome enrolled = run_gradwire(
          {"federate", "enrol", folder / "key", "--client", fmt::format("client-{}", i)});
      EXPECT_EQ(enrolled.status, 0) << enrolled.err;
      folder.write(fmt::format("{}.json", i), enrolled.out, 0600);
    }
  }

  std::vector<std::string> serve_command(std::vector<std::string> more) {
    std::vector<std::string> command{
        gradwire_program(), "federate", "serve",       folder / "federated.json", "--key",
        folder / "key",     "--output", folder / "run"};
    command.insert(command.end(), more.begin(), more.end());
    return command;
  }
  std::unique_ptr<Launched> client(int i, const std::string& server,
                                   const std::vector<std::string>& more = {}) {
    std::vector<std::string> command{gradwire_program(), "federate",
                                     "client",           folder / fmt::format("{}.json", i),
                                     "--server",         server,
                                     "--data",           folder.path(),
                                     "--part",           fmt::format("{}/{}", i, kProcesses),
                                     "--give-up",        "60"};
    command.insert(command.end(), more.begin(), more.end());
    return std::make_unique<Launched>(command);
  }
  json content(const std::string& file) {
    std::ifstream stream(folder / file);
    return json::parse(stream);
  }

  /// The data of a page of `gradwire report` with these runs.
  json reported(std::vector<std::string> runs) {
    runs.insert(runs.begin(), "report");
    runs.insert(runs.end(), {"-o", folder / "page.html"});
    const Outcome report = run_gradwire(runs);
    EXPECT_EQ(report.status, 0) << report.err;
    return data_of_page(folder / "page.html");
  }

  void expect_rounds_of_a_simulation(const std::string& file) {
    const Outcome simulated =
        run_gradwire({"federate", "simulate", folder / "federated.json", "--set",
                      "data.path=" + folder.path().string(), "--json", folder / "simulated.json"});
    ASSERT_EQ(simulated.status, 0) << simulated.err;
    const json rounds = content(file)["rounds"], same = content("simulated.json")["rounds"];
    ASSERT_EQ(rounds.size(), 3u);
    for (std::size_t i = 0; i < rounds.size(); ++i) {
      EXPECT_EQ(rounds[i]["used"], 3);
      EXPECT_EQ(rounds[i]["training_loss"], same[i]["training_loss"]) << "round " << i + 1;
    }
  }

  TemporaryFolder folder;
};

/// The address in "listening at ADDRESS: ...".
std::string address_in(const std::string& output) {
  const std::string words = "listening at ";
  const std::size_t begin = output.find(words) + words.size();
  return output.substr(begin, output.find(": rounds") - begin);
}

TEST_F(FederateCommand, ServesTheRoundsOfASimulation) {
  Launched server(serve_command({"--listen", "127.0.0.1:0", "--json", folder / "served.json"}));
  ASSERT_TRUE(server.wait_for_output(": rounds", 1)) << server.err();
  std::vector<std::unique_ptr<Launched>> clients;
  for (int i = 1; i <= kProcesses; ++i) clients.push_back(client(i, address_in(server.out())));
  EXPECT_EQ(server.wait(), 0) << server.err();
  EXPECT_THAT(server.out(), HasSubstr("3 rounds are complete"));
  EXPECT_THAT(server.out(), HasSubstr("8 bits, summed in 20; in the first round 24 bits, summed in "
                                      "36; clients upload the bits of the sum"));
  for (auto& one : clients) {
    EXPECT_EQ(one->wait(), 0) << one->err();
    EXPECT_THAT(one->out(), HasSubstr("this client counted in 3"));
  }
  expect_rounds_of_a_simulation("served.json");
  const json rounds = content("served.json")["rounds"];
  EXPECT_GT(rounds[2]["accuracy"], rounds[0]["accuracy"]);
  EXPECT_LT(rounds[1]["down_bytes"], rounds[0]["down_bytes"]) << "differences are shorter";
  EXPECT_EQ(content("served.json")["fairness"]["jain"], 1);
  EXPECT_GT(std::filesystem::file_size(folder / "run/model.safetensors"), 4u * 16 * 784);
  EXPECT_EQ(content("run/result.json"), content("served.json"));
  const json runs = reported({folder / "run", "again=" + (folder / "served.json").string(),
                              folder / "simulated.json"})["federated"];
  ASSERT_EQ(runs.size(), 3u);
  EXPECT_EQ(runs[0]["name"], "run");
  EXPECT_EQ(runs[1]["rounds"], runs[0]["rounds"]);
  for (const json& run : runs) {
    EXPECT_EQ(run["rounds"]["committed"], 3) << run["name"];
    EXPECT_EQ(run["clients"], 3);
    EXPECT_EQ(run["jain"], 1);
    EXPECT_EQ(run["participation"]["counted"]["least"], 3) << run["name"];
    EXPECT_GT(run["cost"]["up_bytes"]["least"], 0) << run["name"];
  }
  EXPECT_TRUE(runs[0]["accuracy"].is_null()) << "clients do not tell";
  EXPECT_TRUE(runs[0]["classes"].empty());
  EXPECT_EQ(runs[2]["accuracy"]["count"], 3);
}

TEST_F(FederateCommand, ASimulationIsReported) {
  const auto simulate = [&](std::vector<std::string> more) {
    more.insert(more.begin(),
                {"federate", "simulate", folder / "federated.json", "--set",
                 "data.path=" + folder.path().string(), "--set", "partition.clients=9", "--set",
                 "devices.drop=0.3", "--set", "round.least=2", "--set", "round.ask=4"});
    const Outcome simulated = run_gradwire(more);
    ASSERT_EQ(simulated.status, 0) << simulated.err;
  };
  simulate({"--json", folder / "uniform.json", "--set", "rounds=6"});
  simulate({"--json", folder / "fair.json", "--set", "rounds=6", "--set", "round.select=fair"});
  simulate({"--json", folder / "sweep.json", "--sweep", "local.epochs=1,2", "--target", "0.5"});
  const json runs = reported({folder / "uniform.json", folder / "fair.json"})["federated"];
  ASSERT_EQ(runs.size(), 2u);
  const json result = content("uniform.json"), shown = runs[0];
  EXPECT_EQ(shown["name"], "uniform");
  double up = 0;
  for (const json& round : result["rounds"]) up += round["up_bytes"].get<double>();
  EXPECT_EQ(shown["rounds"]["committed"], 6);
  EXPECT_NEAR(shown["rounds"]["up_bytes"], up, 1e-5 * up);
  EXPECT_NEAR(shown["rounds"]["accuracy"]["last"], result["rounds"].back()["accuracy"], 1e-5);
  EXPECT_NEAR(shown["jain"], result["fairness"]["jain"], 1e-5);
  EXPECT_NEAR(shown["worst_tenth_accuracy"], result["fairness"]["worst_tenth_accuracy"], 1e-5);
  double samples = 0, counted = 0, clients = 0;
  for (const json& group : shown["participation"]["groups"]) {
    samples += group["sample_share"].get<double>();
    counted += group["counted_share"].get<double>();
    clients += group["clients"].get<double>();
  }
  EXPECT_NEAR(samples, 1, 1e-5);
  EXPECT_NEAR(counted, 1, 1e-5);
  EXPECT_EQ(clients, 9);
  ASSERT_EQ(shown["classes"].size(), 3u);
  EXPECT_EQ(shown["classes"][2]["devices"], "fast");
  EXPECT_GT(shown["cost"]["compute_seconds"]["most"], 0);
  const Outcome sweep = run_gradwire({"report", folder / "sweep.json"});
  EXPECT_EQ(sweep.status, 2);
  EXPECT_THAT(sweep.err, HasSubstr("is a sweep of gradwire federate simulate"));
}

TEST_F(FederateCommand, HasTheSameRoundsWithSecureAggregation) {
  Launched server(
      serve_command({"--listen", "127.0.0.1:0", "--json", folder / "served.json", "--set",
                     R"(secure={"active": true, "dropping": 0, "colluding": 0})"}));
  ASSERT_TRUE(server.wait_for_output(": rounds", 1)) << server.err();
  std::vector<std::unique_ptr<Launched>> clients;
  for (int i = 1; i <= kProcesses; ++i)
    clients.push_back(client(i, address_in(server.out()), {"--secure", "--secure-active"}));
  EXPECT_EQ(server.wait(), 0) << server.err();
  for (auto& one : clients) EXPECT_EQ(one->wait(), 0) << one->err();
  EXPECT_THAT(server.out(), HasSubstr("secure aggregation: 2 neighbours"));
  expect_rounds_of_a_simulation("served.json");
}

TEST_F(FederateCommand, AClientOfTwoRanksCounts) {
  Launched server(
      serve_command({"--listen", "127.0.0.1:0", "--json", folder / "served.json", "--set",
                     "round.ask=1", "--set", "round.use=1", "--set", "round.least=1"}));
  ASSERT_TRUE(server.wait_for_output(": rounds", 1)) << server.err();
  Launched ranks({gradwire_program(), "run", "-n", "2", "--", gradwire_program(), "federate",
                  "client", folder / "1.json", "--server", address_in(server.out()), "--data",
                  folder.path(), "--part", "1/3", "--give-up", "60"});
  EXPECT_EQ(ranks.wait(), 0) << ranks.err();
  EXPECT_EQ(server.wait(), 0) << server.err();
  EXPECT_THAT(ranks.out(),
              HasSubstr("[0] the server has no more rounds; this client counted in 3"));
  EXPECT_THAT(ranks.out(), Not(HasSubstr("[1]")));
  for (const json& round : content("served.json")["rounds"]) EXPECT_EQ(round["used"], 1);
}

TEST_F(FederateCommand, ServesAnyModelFromAFile) {
  const TrainableModule net = linear();
  const FederatedTensors tensors = federated_tensors(*net.module);
  save_safetensors(folder / "net.safetensors", tensors.parameters);
  write_file(folder / "federated.json", fmt::format(R"({{
      "model": {{"file": "{}"}}, "rounds": 2, "round": {{"ask": 1, "use": 1, "least": 1}},
      "local": {{"epochs": 3, "learning_rate": 0.1}}}})",
                                                    (folder / "net.safetensors").string()));
  Launched server(serve_command({"--listen", "127.0.0.1:0", "--json", folder / "served.json"}));
  ASSERT_TRUE(server.wait_for_output(": rounds", 1)) << server.err();
  const std::string address = address_in(server.out());
  const auto without_code = client(2, address);
  EXPECT_EQ(without_code->wait(), 1);
  EXPECT_THAT(without_code->err(), HasSubstr("gradwire::FederatedClient"));
  FederatedClient here({.identity = folder / "1.json", .server = address});
  const DataSet data = points(60);
  EXPECT_EQ(here.run(net, data, one_client(data, 0.2)), 2);
  EXPECT_EQ(server.wait(), 0) << server.err();
  const json served = content("served.json");
  EXPECT_GT(served["rounds"][1]["accuracy"], served["rounds"][0]["accuracy"]);
  const auto trained = load_safetensors(folder / "run/model.safetensors").tensors;
  ASSERT_EQ(trained.size(), tensors.parameters.size());
  for (const auto& [name, tensor] : tensors.parameters)
    EXPECT_EQ(trained.at(name).sizes(), tensor.sizes()) << name;
}

TEST_F(FederateCommand, HasItsResultsBeforeAllClientsKnowTheEnd) {
  const std::vector<std::string> alone{
      "--listen", "127.0.0.1:0", "--json", folder / "served.json", "--set", "rounds=1",
      "--set",    "round.ask=1", "--set",  "round.use=1",          "--set", "round.least=1",
  };
  Launched server(serve_command(alone));
  ASSERT_TRUE(server.wait_for_output(": rounds", 1)) << server.err();
  auto one = client(1, address_in(server.out()));
  ASSERT_TRUE(server.wait_for_output("waiting for 1 clients to fetch the end, at most", 1))
      << server.err();
  one->send_signal(SIGKILL);
  EXPECT_TRUE(std::filesystem::exists(folder / "run/model.safetensors"));
  EXPECT_EQ(content("run/result.json")["rounds"].size(), 1u);
  EXPECT_EQ(content("run/result.json"), content("served.json"));
  server.send_signal(SIGTERM);
  EXPECT_EQ(server.wait(), 0) << server.err();
  EXPECT_THAT(server.out(), HasSubstr("1 rounds are complete; the model is"));
  std::filesystem::remove(folder /
                          "run/model.safetensors");  // The server might have been killed before.
  auto again = alone;
  again.emplace_back("--resume");
  Launched resumed(serve_command(again));
  EXPECT_EQ(resumed.wait(), 0) << resumed.err();
  EXPECT_THAT(resumed.out(), HasSubstr("1 rounds are complete; the model is"));
  EXPECT_TRUE(std::filesystem::exists(folder / "run/model.safetensors"));
}

TEST_F(FederateCommand, GoesOnAfterTheServerWasStopped) {
  const std::vector<std::string> four{"--set", "rounds=4", "--listen"};
  auto first = four;
  first.emplace_back("127.0.0.1:0");
  Launched server(serve_command(first));
  ASSERT_TRUE(server.wait_for_output(": rounds", 1)) << server.err();
  const std::string address = address_in(server.out());
  std::vector<std::unique_ptr<Launched>> clients;
  for (int i = 1; i <= kProcesses; ++i) clients.push_back(client(i, address));
  ASSERT_TRUE(server.wait_for_output("3 used", 2)) << server.err();
  server.send_signal(SIGTERM);
  EXPECT_EQ(server.wait(), 0) << server.err();
  EXPECT_THAT(server.out(), HasSubstr("go on with --resume"));
  auto again = four;
  again.insert(again.end(), {address, "--json", folder / "served.json"});
  Launched anew(serve_command(again));
  EXPECT_NE(anew.wait(), 0);
  EXPECT_THAT(anew.err(), HasSubstr("go on with --resume, or use another folder"));
  again.emplace_back("--resume");
  Launched resumed(serve_command(again));
  EXPECT_EQ(resumed.wait(), 0) << resumed.err();
  for (auto& one : clients) EXPECT_EQ(one->wait(), 0) << one->err();
  std::int64_t last = 0, committed = 0;
  const json served = content("served.json");
  for (const json& round : served["rounds"]) {
    EXPECT_THAT(round["round"].get<std::int64_t>(), Gt(last));
    last = round["round"];
    committed += round["abandoned"] ? 0 : 1;
  }
  EXPECT_EQ(committed, 4);
}

TEST_F(FederateCommand, GoesOnWithTheSameConfigurationAlone) {
  const auto simulate = [&](const std::vector<std::string>& more) {
    std::vector<std::string> command{"federate", "simulate", folder / "federated.json", "--set",
                                     "data.path=" + folder.path().string()};
    command.insert(command.end(), more.begin(), more.end());
    return run_gradwire(command);
  };
  const std::string file = folder / "checkpoint", elsewhere = folder / "elsewhere";
  ASSERT_EQ(simulate({"--checkpoint", file}).status, 0);
  const auto error = [&](const std::string& setting) {
    const Outcome refused = simulate({"--resume", file, "--set", "rounds=4", "--set", setting});
    EXPECT_NE(refused.status, 0) << setting;
    return refused.err;
  };
  EXPECT_THAT(error("local.epochs=3"), HasSubstr("local.epochs is 2 there, and 3 here"));
  EXPECT_THAT(error("server.momentum=0.5"),
              HasSubstr("server.momentum is not given there, and 0.5 here"));
  EXPECT_THAT(error("model.hidden=8"), HasSubstr("model.hidden is 16 there, and 8 here"));
  std::filesystem::create_directory(elsewhere);
  write_image_data(elsewhere, 120, 30);
  const Outcome same =
      simulate({"--resume", file, "--set", "rounds=4", "--set", "data.path=" + elsewhere});
  EXPECT_EQ(same.status, 0) << same.err;
  EXPECT_THAT(same.err, HasSubstr("round 4"));
}

TEST_F(FederateCommand, SaysThatItCannotWriteItsResultBeforeItSimulates) {
  for (const std::vector<std::string>& how : {std::vector<std::string>{},
                                              {"--protocol-only"},
                                              {"--sweep", "rounds=1,2", "--target", "0"}}) {
    std::vector<std::string> command{"federate",
                                     "simulate",
                                     folder / "federated.json",
                                     "--set",
                                     "data.path=" + folder.path().string(),
                                     "--json",
                                     folder.path().string()};
    command.insert(command.end(), how.begin(), how.end());
    const Outcome refused = run_gradwire(command);
    EXPECT_NE(refused.status, 0);
    EXPECT_THAT(refused.err, HasSubstr("cannot be written"));
    EXPECT_EQ(refused.out, "");
  }
}

TEST_F(FederateCommand, RefusesWhatCannotBeServed) {
  const auto error = [&](const std::vector<std::string>& more) {
    auto command = serve_command(more);
    command.erase(command.begin());
    const Outcome refused = run_gradwire(command);
    EXPECT_NE(refused.status, 0);
    return refused.err;
  };
  EXPECT_THAT(error({"--listen", "127.0.0.1"}), HasSubstr("expected HOST:PORT or :PORT"));
  EXPECT_THAT(error({"--listen", "127.0.0.1:0", "--resume"}), HasSubstr("leave out --resume"));
  EXPECT_THAT(error({"--listen", "127.0.0.1:0", "--set", "model.file=net.safetensors"}),
              HasSubstr("net.safetensors"));
  EXPECT_THAT(
      error({"--listen", "127.0.0.1:0", "--set", "update.mask=0.5", "--set", "round.use=2", "--set",
             "round.least=2", "--set", R"(secure={"neighbours": 1, "threshold": 1})"}),
      HasSubstr("update.mask is 0.5, and with a threshold of 1 an element may have 2"));
  std::filesystem::remove(folder / "key");
  EXPECT_THAT(error({"--listen", "127.0.0.1:0"}), HasSubstr("key"));
  const Outcome part = run_gradwire(
      {"federate", "client", folder / "1.json", "--part", "4/3", "--server", "127.0.0.1:1"});
  EXPECT_EQ(part.status, 2);
  EXPECT_THAT(part.err, HasSubstr("expected K/N"));
}

}  // namespace
}  // namespace gradwire::test
