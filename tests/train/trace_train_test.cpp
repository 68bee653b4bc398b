#include <algorithm>
#include <array>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/idx_files.h"
#include "tests/support/temporary_folder.h"
#include "tests/train/subprocess.h"

namespace gradwire::test {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

/// A span of a trace, in microseconds.
struct Span {
  int rank = 0;
  int thread = 0;
  std::string name;
  std::string kind;
  int step = -1;
  double begin = 0;
  double end = 0;
  double bytes = 0;
};

// Times are written in nanoseconds, as numbers that represent them only approximately.
constexpr double kRounding = 0.01;

std::vector<Span> spans_of(const json& trace) {
  std::vector<Span> spans;
  for (const auto& event : trace.at("traceEvents")) {
    if (event.at("ph") != "X") continue;
    const double begin = event.at("ts");
    spans.push_back({.rank = event.at("pid"),
                     .thread = event.at("tid"),
                     .name = event.at("name"),
                     .kind = event.at("cat"),
                     .step = event.at("args").at("step"),
                     .begin = begin,
                     .end = begin + event.at("dur").get<double>(),
                     .bytes = event.at("args").value("bytes", 0.0)});
  }
  return spans;
}

/// Returns the maximum clock error that the trace reports for a rank, in microseconds.
double clock_error(const json& trace) {
  double max = -1;
  for (const auto& event : trace.at("traceEvents")) {
    if (event.at("name") != "process_labels") continue;
    const std::string label = event.at("args").at("labels");
    const std::string before = "clock +-";
    EXPECT_EQ(label.find(before), 0u) << label;
    max = std::max(max, std::stod(label.substr(before.size())));
  }
  EXPECT_GE(max, 0);
  return max;
}

struct TrainTrace : ::testing::Test {
  TrainTrace() {
    write_image_data(folder.path(), 330, 101);
    write_file(folder / "c.json", R"({"model": {"name": "mlp", "hidden": 64}, "batch_size": 32,
                                      "checkpoint": ""})");
  }

  Finished train(const std::vector<std::string>& more) {
    std::vector<std::string> command{own_program().parent_path() / "gradwire", "train",
                                     folder / "c.json", "--data", folder.path()};
    if (!file.empty()) command.insert(command.end(), {"--trace", file});
    command.insert(command.end(), more.begin(), more.end());
    return run(command);
  }

  json written() const {
    std::ifstream stream(file);
    return json::parse(stream);
  }

  TemporaryFolder folder;
  std::string file = folder / "trace.json";
};

bool inside(const Span& inner, const Span& outer) {
  return inner.begin >= outer.begin - kRounding && inner.end <= outer.end + kRounding;
}

void expect_nested(const std::vector<Span>& spans) {
  for (const auto& a : spans) {
    for (const auto& b : spans) {
      if (a.rank != b.rank || a.thread != b.thread) continue;
      const bool apart = a.end <= b.begin + kRounding || b.end <= a.begin + kRounding;
      EXPECT_TRUE(apart || inside(a, b) || inside(b, a)) << a.name << " and " << b.name;
    }
  }
}

TEST_F(TrainTrace, HasEveryRankAndEveryPartOfEveryStep) {
  const auto finished = train({"-n", "2"});
  ASSERT_EQ(finished.status, 0) << finished.output;
  const auto spans = spans_of(written());
  expect_nested(spans);
  for (int rank = 0; rank < 2; ++rank) {
    double sent = 0;
    for (int step = 0; step < 10; ++step) {
      std::map<std::string, int> count;
      const auto is_this = [&](const Span& span) {
        return span.rank == rank && span.step == step && span.kind == "step";
      };
      const auto whole = std::ranges::find_if(spans, is_this);
      ASSERT_NE(whole, spans.end()) << rank << " " << step;
      sent += whole->bytes;
      for (const auto& span : spans) {
        if (span.rank != rank || span.step != step) continue;
        ++count[span.kind];
        // Other spans may fall into the next step.
        const bool own = span.kind == "data" || span.kind == "forward" || span.kind == "backward";
        EXPECT_TRUE(!own || inside(span, *whole)) << span.name;
      }
      for (const auto* kind : {"step", "data", "forward", "backward"}) {
        EXPECT_EQ(count[kind], 1) << kind;
      }
      EXPECT_GE(count["communication"], 1);
    }
    // With two ranks, each sends as many bytes as its gradients have, partly between steps.
    EXPECT_GT(sent, 4 * 64 * 784 * sizeof(float));
  }
}

TEST_F(TrainTrace, ABucketEndsOnNoRankBeforeItBeganOnTheOther) {
  const auto finished = train({"-n", "2"});
  ASSERT_EQ(finished.status, 0) << finished.output;
  const auto trace = written();
  std::map<std::pair<int, std::string>, std::array<Span, 2>> buckets;
  for (const auto& span : spans_of(trace)) {
    if (span.kind != "communication") continue;
    buckets[{span.step, span.name}][static_cast<std::size_t>(span.rank)] = span;
  }
  ASSERT_GE(buckets.size(), 10u);
  // A mean needs both ranks' data, so that misaligned clocks would be visible.
  const double clocks = clock_error(trace) + kRounding;
  for (const auto& [bucket, span] : buckets) {
    EXPECT_GT(span[0].end + clocks, span[1].begin) << bucket.second << " of " << bucket.first;
    EXPECT_GT(span[1].end + clocks, span[0].begin) << bucket.second << " of " << bucket.first;
  }
}

TEST_F(TrainTrace, GathersOfTheFinalEvaluationBelongToNoStep) {
  const auto finished = train({"-n", "2", "--set", "zero.stage=3"});
  ASSERT_EQ(finished.status, 0) << finished.output;
  std::map<int, int> gathers;
  for (const auto& span : spans_of(written())) gathers[span.step] += span.name == "gather 0";
  EXPECT_GT(gathers.at(-1), gathers.at(8)) << "101 images, 16 at a time";
  EXPECT_LE(gathers.at(9), gathers.at(8));
}

TEST_F(TrainTrace, TheSummaryNamesTheBottleneck) {
  const auto finished = train({"-n", "2"});
  ASSERT_EQ(finished.status, 0) << finished.output;
  EXPECT_THAT(finished.output,
              AllOf(HasSubstr("Trace of 10 steps on 2 ranks"), HasSubstr("slowest rank"),
                    HasSubstr("hidden behind computing"), HasSubstr(file)));
  EXPECT_THAT(finished.output, AnyOf(HasSubstr("communication:"), HasSubstr("data:"),
                                     HasSubstr("slower than the others"), HasSubstr("compute:")));
}

TEST_F(TrainTrace, WorksOnOneRank) {
  const auto finished = train({});
  ASSERT_EQ(finished.status, 0) << finished.output;
  EXPECT_THAT(finished.output,
              AllOf(HasSubstr("Trace of 10 steps on 1 rank:"), Not(HasSubstr("slowest rank"))));
  const auto spans = spans_of(written());
  EXPECT_EQ(std::ranges::count(spans, "step", &Span::kind), 10);
  EXPECT_EQ(std::ranges::count(spans, "optimiser", &Span::kind), 10);
  EXPECT_EQ(std::ranges::count(spans, "communication", &Span::kind), 0);
}

TEST_F(TrainTrace, AFileThatCannotBeWrittenIsSaidBeforeTraining) {
  file = "/proc/none/trace.json";
  const auto finished = train({"-n", "2"});
  EXPECT_NE(finished.status, 0);
  EXPECT_THAT(finished.output, AllOf(HasSubstr("/proc/none/trace.json cannot be written"),
                                     Not(HasSubstr("Trained on"))));
}

TEST_F(TrainTrace, DoesNotChangeWhatIsLearnt) {
  write_file(folder / "c.json", R"({"model": {"name": "mlp", "hidden": 16}, "batch_size": 32})");
  const auto traced = train({"-n", "2", "--output", folder / "a"});
  ASSERT_EQ(traced.status, 0) << traced.output;
  file = "";
  const auto plain = train({"-n", "2", "--output", folder / "b"});
  ASSERT_EQ(plain.status, 0) << plain.output;
  EXPECT_THAT(plain.output, Not(HasSubstr("Trace of")));
  const auto read = [this](const char* out) {
    return content_of(folder / out / "model.safetensors");
  };
  EXPECT_FALSE(read("a").empty());
  EXPECT_EQ(read("a"), read("b"));
}

TEST_F(TrainTrace, CountsMemoryWhereZeroTakesParametersAway) {
  const auto finished = train({"-n", "2", "--output", folder / "out", "--set", "zero.stage=3"});
  ASSERT_EQ(finished.status, 0) << finished.output;
  EXPECT_THAT(finished.output, HasSubstr("tensors' memory"));
}

}  // namespace
}  // namespace gradwire::test
