#include "gradwire/report/report_page.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "gradwire/base/markup.h"
#include "gradwire/report/report_data.h"

namespace gradwire::report {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kLadder = R"({"rows": [
  {"system": "ddp", "codec": "none", "accumulate": 2, "local_steps": 4, "overlap": "none",
   "zero_stage": 3, "ranks": 4, "steps": 20, "single_ms": 234, "step_ms": 468, "exposed_ms": 200,
   "eta": 0.5, "bytes_per_step": 1e8, "cpu_ms": 100, "bound": 0.75}]})";

constexpr const char* kFederated = R"({"rounds": [
  {"round": 1, "accuracy": 0.5, "loss": 1, "training_loss": 1, "asked": 3, "ready": 3, "used": 2,
   "dropped": 0, "abandoned": false, "up_bytes": 100, "down_bytes": 100, "seconds": 1}],
  "fairness": {"jain": 0.5, "mean_accuracy": null, "worst_tenth_accuracy": null, "classes": []},
  "clients": []})";

class ReportFiles : public ::testing::Test {
 protected:
  ReportFiles() { fs::create_directories(folder_); }
  ~ReportFiles() override { fs::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& text) {
    const auto path = folder_ / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path) << text;
    return path.string();
  }

  std::string refusal(const std::string& argument) {
    try {
      read_report_inputs({argument});
    } catch (const Exception& error) {
      EXPECT_EQ(error.kind(), ErrorKind::invalid_argument);
      return error.what();
    }
    return "";
  }

  const fs::path folder_ =
      fs::temp_directory_path() / ("gradwire_report_" + std::to_string(::getpid()));
};

TEST_F(ReportFiles, FoldersFilesAndNames) {
  const RunRecord record{.summary = {.steps = 1}};
  write("a/x/run.json", run_record_json(record));
  write("b/x/run.json", run_record_json(record));
  const auto inputs = read_report_inputs({(folder_ / "a/x").string(), (folder_ / "b/x/").string(),
                                          "one=" + (folder_ / "a/x/run.json").string(),
                                          write("single.json", summary_json({.ranks = 3})),
                                          "2.5 Gb/s=" + write("ladder.json", kLadder)});
  std::vector<std::string> names;
  for (const auto& run : inputs.runs) names.push_back(run.record.name);
  EXPECT_THAT(names, ElementsAre("x", "x (2)", "one", "single"));
  EXPECT_EQ(inputs.runs[3].record.summary.ranks, 3);
  ASSERT_EQ(inputs.ladders.size(), 1);
  EXPECT_EQ(inputs.ladders[0].name, "2.5 Gb/s");
  EXPECT_EQ(label_of(inputs.ladders[0].rows[0]),
            "ZeRO-3, fp32, 2 passes, every 4 steps, no overlap");
  EXPECT_EQ(inputs.ladders[0].rows[0].bound, 0.75);
}

TEST_F(ReportFiles, FederatedRuns) {
  write("a/x/run.json", run_record_json({.summary = {.steps = 1}}));
  write("b/x/result.json", kFederated);
  const auto inputs = read_report_inputs({(folder_ / "a/x").string(), (folder_ / "b/x").string(),
                                          write("fair.json", kFederated),
                                          "one=" + (folder_ / "b/x/result.json").string()});
  std::vector<std::string> names;
  for (const auto& run : inputs.federated) names.push_back(run.name);
  EXPECT_THAT(names, ElementsAre("x (2)", "fair", "one")) << "unique among all runs";
  EXPECT_EQ(inputs.federated[1].record.jain, 0.5);
  EXPECT_EQ(inputs.federated[0].source, (folder_ / "b/x/result.json").string());
  const auto data = report_data(inputs, "title");
  EXPECT_EQ(data["federated"][2]["name"], "one");
  EXPECT_EQ(data["federated"][2]["rounds"]["accuracy"]["last"], 0.5);
}

TEST_F(ReportFiles, WhatIsNoRunIsRefusedByName) {
  EXPECT_THAT(refusal("/no/such/run"), AllOf(HasSubstr("/no/such/run"), HasSubstr("no such file"),
                                             HasSubstr("output folder of gradwire train")));
  fs::create_directories(folder_ / "empty");
  EXPECT_THAT(refusal((folder_ / "empty").string()),
              HasSubstr("has no run.json and no result.json"));
  EXPECT_THAT(refusal(write("text.json", "hello")), HasSubstr("text.json: it is not JSON"));
  EXPECT_THAT(refusal(write("list.json", "[1]")), HasSubstr("neither a run nor a ladder"));
  EXPECT_THAT(refusal(write("topology.json", R"({"hosts": []})")),
              AllOf(HasSubstr("topology.json"), HasSubstr("neither a run nor a ladder")));
  EXPECT_THAT(refusal(write("rows.json", R"({"rows": [{"system": "gradwire"}]})")),
              AllOf(HasSubstr("rows.json"), HasSubstr("rows[0].codec is missing")));
  EXPECT_THAT(refusal(write("f.json", R"({"fairness": {}, "rounds": [{"round": 1}]})")),
              AllOf(HasSubstr("f.json"), HasSubstr("rounds[0].accuracy is missing")));
  EXPECT_THAT(refusal(write("sweep.json", R"({"sweep": []})")),
              AllOf(HasSubstr("sweep.json"), HasSubstr("with --set in place of --sweep")));
  EXPECT_THAT(refusal(write("r/run.json", R"({"format": "gradwire run"})")),
              AllOf(HasSubstr("run.json"), HasSubstr("version is missing")));
  EXPECT_THAT(refusal(write("s.json", R"({"images_per_second": 1})")),
              AllOf(HasSubstr("s.json"), HasSubstr("ranks is missing")));
}

TEST(ReportData, HasEachRunsFigures) {
  ReportInputs inputs;
  inputs.runs.resize(3);
  auto& record = inputs.runs[0].record;
  record.name = "a";
  record.steps = {{.step = 0, .loss = 2, .compute = 0.5}, {.step = 1, .loss = 1, .compute = 1.5}};
  record.epoch_seconds = {2, 4};
  inputs.runs[1].record.name = "b";
  inputs.runs[1].record.steps = {{.step = 1, .loss = 1.25}};
  inputs.runs[2].record.name = "c";
  inputs.runs[1].record.memory = {.samples = {{.bytes = {1, 2}}, {.bytes = {4, 5}}},
                                  .peak_bytes = 9};
  const auto data = report_data(inputs, "title");
  EXPECT_EQ(data["runs"][0]["epoch_s"]["median"], 3.0);
  EXPECT_EQ(data["runs"][0]["step_s"]["lower_quartile"], 0.75);
  EXPECT_EQ(data["runs"][0]["loss_difference"], 0.0);
  EXPECT_EQ(data["runs"][1]["loss_difference"], 0.25);
  EXPECT_EQ(data["runs"][1]["memory_at_peak"]["bytes"]["gradients"], 5);
  EXPECT_EQ(data["runs"][1]["peak_bytes"], 9);
  inputs.runs[1].record.summary.memory = {.bytes = 12, .at_peak = {5, 7}, .resident = 99};
  const auto run = report_data(inputs, "title")["runs"][1];
  EXPECT_EQ(run["memory_at_peak"]["bytes"]["gradients"], 7);  // The rank with the highest peak.
  EXPECT_EQ(run["peak_bytes"], 12);
  EXPECT_EQ(run["resident_bytes"], 99);
  for (const char* key : {"epoch_s", "step_s", "loss", "histogram", "memory", "loss_difference"}) {
    EXPECT_TRUE(data["runs"][2][key].is_null()) << key;
  }
}

TEST(HtmlPage, TextOfUsersStaysText) {
  EXPECT_EQ(markup_escaped("<a href=\"x\">'&"), "&lt;a href=&quot;x&quot;&gt;&#39;&amp;");
  const std::string nasty = "</script><script>alert(1)</script><!--";
  const auto safe = json_for_script(nlohmann::json(nasty).dump());
  EXPECT_THAT(safe, Not(HasSubstr("<")));
  EXPECT_EQ(nlohmann::json::parse(safe), nasty);
}

}  // namespace
}  // namespace gradwire::report
