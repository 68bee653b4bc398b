#include "gradwire/plan/plan.h"

#include <cmath>
#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gradwire/base/clock.h"
#include "gradwire/base/error.h"
#include "gradwire/plan/search.h"
#include "gradwire/plan/server_choice.h"
#include "gradwire/plan/sweep.h"

namespace gradwire::plan {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

PlanInput case_study() {
  return {.model = model_named("resnet50"),
          .device = device_named("cpu_32"),
          .network = network_named("10gbe"),
          .strategy = {.nodes = 4, .overlap = step::Overlap::none},
          .measured = {.step = 0.234, .communication = 0.106, .nodes = 4}};
}

const Advice* advice_called(const Plan& plan, const std::string& change) {
  for (const Advice& a : plan.advice)
    if (a.change == change) return &a;
  return nullptr;
}

TEST(Advice, PredictsTheNextRungOfTheLadder) {
  PlanInput input = case_study();
  const auto expect = [&](const std::string& change, const std::string& text) {
    const Plan plan = make_plan(input);
    const Advice* advice = advice_called(plan, change);
    ASSERT_NE(advice, nullptr) << change;
    EXPECT_EQ(advice->text, text);
    input = advice->input;
    EXPECT_DOUBLE_EQ(step_time(input).eta, advice->eta);
  };
  expect("codec bf16", "codec bf16: 376.5 -> 446 samples/s, efficiency 68.8 -> 81.5 %");
  expect("accumulate 2 passes",
         "accumulate 2 passes: 446 -> 491.4 samples/s, efficiency 81.5 -> 89.8 %");
  expect("second NIC", "second NIC: 491.4 -> 517 samples/s, efficiency 89.8 -> 94.5 %");
}

TEST(Advice, IsRankedByWhatItBrings) {
  const Plan plan = make_plan(case_study());
  ASSERT_GT(plan.advice.size(), 5u);
  for (std::size_t i = 1; i < plan.advice.size(); ++i)
    EXPECT_GE(plan.advice[i - 1].samples_per_second, plan.advice[i].samples_per_second);
}

TEST(Advice, NeverSlowsAModelThatFits) {
  for (const std::string model : {"gpt2", "resnet50", "vgg16", "bert_base"}) {
    for (const std::string network : {"1gbe", "10gbe"}) {
      const Plan plan = make_plan({.model = model_named(model),
                                   .device = device_named("rtx3090"),
                                   .network = network_named(network),
                                   .strategy = {.nodes = 4, .batch = 16}});
      ASSERT_TRUE(plan.fits);
      for (const Advice& a : plan.advice) {
        EXPECT_GT(a.samples_per_second, plan.time.samples_per_second) << model << a.text;
        EXPECT_DOUBLE_EQ(a.samples_per_second, step_time(a.input).samples_per_second);
      }
    }
  }
}

TEST(Advice, NamesTheSlowHostOfAMeasuredNetwork) {
  std::vector<topology::Host> hosts(4);
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    hosts[i].name = std::string(1, static_cast<char>('a' + i));
    hosts[i].rails = {
        {.latency = std::chrono::microseconds(50), .bytes_per_second = i == 3 ? 12e6 : 119.5e6}};
  }
  PlanInput input = case_study();
  input.network = network_of(topology::Topology(hosts, {0, 1, 2, 3}));
  input.measured.communication = 0;
  const Plan plan = make_plan(input);
  const Advice& repair = plan.advice.front();
  EXPECT_EQ(repair.change, "leave out d, or repair its link (96 Mb/s where others have 956 Mb/s)");
  EXPECT_GT(repair.samples_per_second, 5 * plan.time.samples_per_second);
}

TEST(Advice, AveragesOfLocalStepsHideBehindMoreSteps) {
  PlanInput input = case_study();
  input.measured.communication = 10.6;
  input.strategy.overlap = step::Overlap::full;
  const Plan plan = make_plan(input);
  const Advice* const plain = advice_called(plan, "8 local steps");
  const Advice* const hidden =
      advice_called(plan, "8 local steps, averages of half a model overlapped with 3 of them");
  ASSERT_NE(plain, nullptr);
  ASSERT_NE(hidden, nullptr);
  EXPECT_GT(hidden->eta, plain->eta);
  input.strategy.local_steps = 8;
  const Plan local = make_plan(input);
  EXPECT_NE(advice_called(local, "averages overlapped with 7 steps"), nullptr);
  input.strategy.overlap_steps = 7;
  for (const Advice& a : make_plan(input).advice)
    EXPECT_FALSE(a.change.starts_with("averages")) << a.change;
}

TEST(Advice, MakesModelsFit) {
  PlanInput input = case_study();
  input.model = model_named("gpt2_xl");
  input.device = device_named("rtx4090");
  input.strategy.batch = 1;
  const Plan plan = make_plan(input);
  EXPECT_FALSE(plan.fits);
  EXPECT_TRUE(plan.can_fit);
  ASSERT_FALSE(plan.advice.empty());
  for (const Advice& a : plan.advice) {
    EXPECT_TRUE(a.fits);
    EXPECT_THAT(a.text, HasSubstr("and fits"));
  }
}

TEST(Plan, SaysWhatCannotFit) {
  PlanInput input = case_study();
  input.model = model_named("llama2_70b");
  input.strategy.batch = 1;
  const Plan plan = make_plan(input);
  EXPECT_FALSE(plan.can_fit);
  EXPECT_THAT(memory_sentence(plan), HasSubstr("256 GB"));
}

TEST(Plan, JsonHasItsNumbers) {
  const auto json = nlohmann::json::parse(to_json(make_plan(case_study())));
  EXPECT_NEAR(json["eta"].get<double>(), 0.688, 0.0005);
  EXPECT_NEAR(json["t_s_ms"].get<double>(), 234, 1e-6);
  EXPECT_NEAR(json["t_c_ms"].get<double>(), 106, 1e-6);
  EXPECT_NEAR(json["exposed_ms"].get<double>(), 106, 1e-6);
  EXPECT_EQ(json["bottleneck"], "bandwidth");
  EXPECT_TRUE(json["fits"].get<bool>());
  EXPECT_GT(json["memory_bytes"].get<double>(), 16 * 25e6);
  double memory = 0;
  for (const char* part : {"parameters", "gradients", "optimizer", "activations", "buffers"})
    memory += json["memory"][part].get<double>();
  EXPECT_NEAR(memory, json["memory_bytes"].get<double>(), 1);
  EXPECT_EQ(json["advice"][0]["text"].get<std::string>().substr(0, 7), "overlap");
  EXPECT_FALSE(json.contains("cost"));
}

TEST(Plan, RunsHaveACost) {
  PlanInput input = case_study();
  input.device.watts = 250;
  const RunCost cost =
      make_plan(input, {.samples = 1'281'167, .epochs = 90, .per_node_hour = 2, .per_kwh = 0.3})
          .cost;
  EXPECT_EQ(cost.steps, std::ceil(90 * 1281167.0 / 128));
  EXPECT_NEAR(cost.hours, cost.steps * 0.340 / 3600, 1e-6);
  EXPECT_NEAR(cost.rent, cost.hours * 4 * 2, 1e-6);
  EXPECT_NEAR(cost.energy, cost.hours * 4 * 0.25 * 0.3, 1e-6);
}

TEST(Plan, EveryNumberSaysWhereItComesFrom) {
  for (const Explained& e : explain(make_plan(case_study()))) {
    EXPECT_FALSE(e.value.empty()) << e.what;
    EXPECT_FALSE(e.how.empty()) << e.what;
    EXPECT_FALSE(e.source.empty()) << e.what;
  }
  EXPECT_THAT(to_text(explain(make_plan(case_study()))), HasSubstr("measured: --comm-ms 106"));
}

TEST(Plan, TheUsualBatchIsAsLargeAsFits) {
  PlanInput input = case_study();
  input.measured = {};
  EXPECT_EQ(batch_that_fits(input, 32), 32);
  input.model = model_named("gpt2_medium");
  input.device = device_named("rtx4090");
  const double batch = batch_that_fits(input, 32);
  EXPECT_LT(batch, 32);
  input.strategy.batch = batch;
  EXPECT_LE(memory_use(input.model, input.strategy).total(), 24e9);
  input.strategy.batch = 2 * batch;
  EXPECT_GT(memory_use(input.model, input.strategy).total(), 24e9);
}

std::string refusal(const Strategy& strategy) {
  try {
    check_strategy(strategy);
  } catch (const Exception& e) {
    EXPECT_EQ(e.kind(), ErrorKind::invalid_argument);
    return e.what();
  }
  return "nothing";
}

TEST(Strategies, AreCheckedBeforeTheyArePlanned) {
  EXPECT_THAT(refusal({.nodes = 0}), HasSubstr("0 nodes: expected 1 to"));
  EXPECT_THAT(refusal({.codec = "bf61"}), HasSubstr("bf16"));
  EXPECT_THAT(refusal({.codec = "power_sgd"}), HasSubstr("plan with none"));
  EXPECT_THAT(refusal({.zero_stage = 4}), HasSubstr("expected 0 to 3"));
  EXPECT_THAT(refusal({.algorithm = "rign"}), HasSubstr("did you mean \"ring\""));
  EXPECT_THAT(refusal({.nodes = 4, .tensor = 3}), HasSubstr("do not divide"));
  EXPECT_THAT(
      refusal({.nodes = 4, .compute = ComputeType::mixed, .codec = "int8", .zero_stage = 2}),
      HasSubstr("codec none"));
  EXPECT_EQ(refusal({.nodes = 4, .codec = "int8", .zero_stage = 2}), "nothing");
  EXPECT_THAT(refusal({.batch = 0}), HasSubstr("more than 0"));
  EXPECT_EQ(refusal({.nodes = 8, .devices_per_node = 4, .tensor = 4, .pipeline = 2}), "nothing");
}

PlanInput with_servers(const char* model, const char* network, int nodes) {
  return {.model = model_named(model),
          .device = device_named("rtx4090"),
          .network = network_named(network),
          .strategy = {.nodes = nodes}};
}

TEST(ServerChoice, PrefersARingWhereBytesDecide) {
  const ServerChoices choices = choose_servers(with_servers("resnet50", "1gbe", 6), {});
  std::vector<int> servers;
  for (const ServerChoice& choice : choices.all) servers.push_back(choice.input.strategy.servers);
  EXPECT_EQ(servers, (std::vector<int>{0, 1, 2, 4, 6, 6}));
  EXPECT_EQ(choices.best, 0);
  EXPECT_LT(choices.all[4].time.step, choices.all[1].time.step);
  EXPECT_EQ(choices.all[4].input.strategy.machines(), 12);
  EXPECT_EQ(choices.all[5].input.strategy.machines(), 6);
  const double bytes = 4.0 * static_cast<double>(choices.all[0].input.model.parameters());
  EXPECT_NEAR(choices.all[1].time.wire_bytes, 2 * 6 * bytes, 1);
  EXPECT_NEAR(choices.all[5].time.wire_bytes, 2 * 5 * bytes / 6, 1);
  const std::string text = to_text(choices);
  EXPECT_THAT(text, HasSubstr("Best: no servers, but all-reduces"));
  EXPECT_THAT(text, HasSubstr("A ring moves 2 G (W-1)/W"));
  EXPECT_THAT(text, HasSubstr("k more machines"));
  EXPECT_THAT(text, testing::Not(HasSubstr("staleness")));
}

TEST(ServerChoice, HasTheStalenessOfTheMode) {
  servers::ServerPolicy policy;
  set_mode(policy, "async");
  const ServerChoices choices = choose_servers(with_servers("resnet50", "10gbe", 4), policy);
  EXPECT_EQ(choices.all[0].staleness, 0);
  for (std::size_t i = 1; i < choices.all.size(); ++i) {
    EXPECT_NEAR(choices.all[i].staleness, 3, 0.05) << i;
    EXPECT_GE(choices.all[i].staleness_p99, 3);
  }
  EXPECT_THAT(to_text(choices), HasSubstr("simulate --servers K --mode async"));
  const auto json = nlohmann::json::parse(to_json(choices));
  EXPECT_EQ(json["choices"].size(), 5);
  EXPECT_EQ(json["choices"][4]["place"], "workers");
  EXPECT_FALSE(json["choices"][0].contains("staleness"));
  EXPECT_THROW(choose_servers(with_servers("resnet50", "10gbe", 1), {}), Exception);
  EXPECT_THROW(choose_servers(with_servers("resnet50", "10gbe", 2000), policy), Exception);
}

TEST(Sweep, EfficiencyFallsAsNodesGrow) {
  PlanInput input = case_study();
  input.measured.communication = 0;
  const Sweep swept =
      sweep_nodes(input, parse_sweep("nodes=2..100"),
                  {network_named("1gbe"), network_named("10gbe")}, {"ring", "tree"});
  EXPECT_EQ(swept.nodes, (std::vector<int>{2, 4, 8, 16, 32, 64, 100}));
  ASSERT_EQ(swept.lines.size(), 4u);
  for (const Sweep::Line& line : swept.lines) {
    for (std::size_t i = 1; i < line.steps.size(); ++i)
      EXPECT_LE(line.steps[i].eta, line.steps[i - 1].eta + 1e-3) << line.algorithm;
  }
  EXPECT_LT(swept.lines[0].steps[3].eta, swept.lines[2].steps[3].eta);
  EXPECT_THAT(table_of(swept), HasSubstr("10gbe, ring"));
  EXPECT_THAT(report::to_svg(plot_of(swept, "title")), HasSubstr(">nodes<"));
  EXPECT_EQ(nlohmann::json::parse(to_json(swept))["lines"][0]["eta"].size(), 7u);
  for (const char* wrong : {"", "nodes", "nodes=2", "nodes=4..2", "nodes=0..4", "nodes=2..x"})
    EXPECT_THROW(parse_sweep(wrong), Exception) << wrong;
}

/// Tries all strategies of the space one by one, for comparison.
double best_by_trying(const PlanInput& input) {
  double best = 0;
  const double samples = input.strategy.batch * input.strategy.accumulate;
  for (int passes = 1; passes <= samples; passes *= 2) {
    for (const int stage : {0, 1, 2, 3}) {
      for (const char* codec : {"none", "bf16"}) {
        for (const bool recompute : {false, true}) {
          if (recompute && input.model.transformer.layers == 0) continue;
          PlanInput tried = input;
          tried.strategy.overlap = step::Overlap::full;
          tried.strategy.accumulate = passes;
          tried.strategy.batch = samples / passes;
          tried.strategy.zero_stage = stage;
          tried.strategy.codec = codec;
          tried.strategy.recompute = recompute;
          if (memory_use(tried.model, tried.strategy).total() <= tried.device.memory_bytes)
            best = std::max(best, step_time(tried).samples_per_second);
        }
      }
    }
  }
  return best;
}

TEST(Search, FindsTheBestThatFits) {
  for (const char* model : {"resnet50", "gpt2_medium", "gpt2_xl"}) {
    PlanInput input = case_study();
    input.measured = {};
    input.model = model_named(model);
    input.device = device_named("rtx4090");
    input.strategy.compute = ComputeType::bf16;
    const auto found = search_strategies(input);
    ASSERT_FALSE(found.empty()) << model;
    EXPECT_NEAR(found.front().time.samples_per_second, best_by_trying(input),
                1e-3 * found.front().time.samples_per_second)
        << model;
    for (const FoundStrategy& f : found) {
      EXPECT_LE(f.memory.total(), 24e9);
      EXPECT_DOUBLE_EQ(f.input.strategy.global_batch(), input.strategy.global_batch());
    }
  }
}

TEST(Search, CutsABatchIntoWholeSamples) {
  PlanInput input = case_study();
  input.strategy.batch = 24;
  std::set<int> passes;
  for (const FoundStrategy& found : search_strategies(input)) {
    const auto& how = found.input.strategy;
    passes.insert(how.accumulate);
    EXPECT_EQ(how.batch, std::floor(how.batch)) << how.accumulate;
  }
  EXPECT_EQ(passes, (std::set<int>{1, 2, 4, 8}));
}

/// A plan with the bus bandwidth of an engine.
PlanInput over_engine(const std::string& engine) {
  PlanInput input = case_study();
  input.measured.communication = 0;
  input.network = network_of_engine(engine, "1GB/s");
  return input;
}

TEST(Engines, PrintOnlyWhatIsGivenOrMeasured) {
  PlanInput input = over_engine("mpi");
  const double bytes = 4.0 * static_cast<double>(input.model.parameters());
  Plan plan = make_plan(input);
  EXPECT_NEAR(plan.time.t_c, 1.5 * bytes / 1e9, 1e-12);
  EXPECT_THAT(to_text(plan), AllOf(HasSubstr("mpi at 1GB/s (8 Gb/s bus bandwidth)"),
                                   Not(HasSubstr("gradients, latency"))));
  auto json = nlohmann::json::parse(to_json(plan));
  EXPECT_EQ(json["engine"], "mpi");
  EXPECT_EQ(json["bus_bandwidth"], 1e9);
  EXPECT_FALSE(json["phases_ms"].contains("latency"));
  EXPECT_THAT(to_text(explain(plan)), AllOf(HasSubstr("latency neither given nor measured"),
                                            Not(HasSubstr("T_c, latency"))));
  input.network.latency = 5e-6;
  plan = make_plan(input);
  json = nlohmann::json::parse(to_json(plan));
  EXPECT_DOUBLE_EQ(json["phases_ms"]["latency"], 20e-3);
  EXPECT_THAT(to_text(explain(plan)), HasSubstr("T_c, latency: 0.02 ms"));
  json = nlohmann::json::parse(to_json(make_plan(case_study())));
  EXPECT_EQ(json["engine"], "own");
  EXPECT_FALSE(json.contains("bus_bandwidth"));
}

TEST(Engines, AdviceIsWhatTheEngineCanDo) {
  const Plan mpi = make_plan(over_engine("mpi"));
  EXPECT_NE(advice_called(mpi, "codec bf16"), nullptr);
  EXPECT_NE(advice_called(mpi, "bus bandwidth of 20 Gb/s"), nullptr);
  EXPECT_EQ(advice_called(mpi, "second NIC"), nullptr);
  PlanInput input = over_engine("nccl");
  input.strategy.overlap = step::Overlap::full;
  input.network.bytes_per_second = 1e7;
  const Plan nccl = make_plan(input);
  EXPECT_NE(advice_called(nccl, "8 local steps"), nullptr);
  for (const Advice& a : nccl.advice) EXPECT_EQ(a.input.strategy.codec, "none") << a.change;
}

TEST(Engines, HaveOneLineInASweep) {
  const Sweep swept =
      sweep_nodes(over_engine("nccl"), {2, 4},
                  {over_engine("nccl").network, network_named("10gbe")}, {"ring", "tree"});
  ASSERT_EQ(swept.lines.size(), 3u);
  EXPECT_EQ(swept.lines[0].network, "nccl at 1GB/s");
  EXPECT_EQ(swept.lines[0].algorithm, "auto");
  EXPECT_EQ(swept.lines[2].algorithm, "tree");
  EXPECT_LT(swept.lines[1].steps[0].eta, 1);
}

TEST(Search, WritesWhatTrainReads) {
  PlanInput input = case_study();
  input.strategy.zero_stage = 2;
  input.strategy.codec = "int8";
  input.strategy.accumulate = 2;
  const auto json = nlohmann::json::parse(train_config(input));
  EXPECT_EQ(json["batch_size"], 256);
  EXPECT_EQ(json["accumulation_steps"], 2);
  EXPECT_EQ(json["zero"]["stage"], 2);
  EXPECT_EQ(json["parallel"]["codec"], "int8");
  EXPECT_EQ(json["optimizer"]["name"], "adam");
}

TEST(Devices, AreMeasuredOrOfTheCatalogue) {
  SteadyClock clock;
  const Device device = measure_device(clock, 0.02);
  EXPECT_GT(device.rate(ComputeType::fp32), 1e8);
  EXPECT_GT(device.memory_bytes_per_second, 1e8);
  EXPECT_GT(device.memory_bytes, 1e8);
  std::set<std::string> names;
  for (const std::string_view name : device_names()) {
    const Device listed = device_named(std::string(name));
    EXPECT_TRUE(names.insert(listed.name).second);
    EXPECT_GT(listed.rate(ComputeType::bf16), 1e11) << name;
    EXPECT_FALSE(listed.source.empty()) << name;
  }
  try {
    device_named("rtx4080");
    FAIL();
  } catch (const Exception& e) {
    EXPECT_THAT(e.what(), HasSubstr("did you mean \"rtx4090\""));
  }
}

}  // namespace
}  // namespace gradwire::plan
