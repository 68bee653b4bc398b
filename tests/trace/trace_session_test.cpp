#include "gradwire/trace/trace_session.h"

#include <atomic>
#include <filesystem>
#include <fstream>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "gradwire/trace/trace_collection.h"
#include "tests/support/local_job.h"

namespace gradwire {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;
using std::chrono::seconds;
using test::LocalJob;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// A rank's clock, with an offset and too fast by `drift`.
class WrongClock final : public Clock {
 public:
  WrongClock(Duration ahead, double drift) : ahead_(ahead), drift_(drift) {}

  Time of(Time true_time) const {
    const auto passed = static_cast<double>((true_time - start_).count());
    return true_time + ahead_ + Duration(static_cast<Duration::rep>(drift_ * passed));
  }
  Time now() const override { return of(right_.now()); }

 private:
  SteadyClock right_;
  Time start_ = right_.now();
  Duration ahead_;
  double drift_;
};

WrongClock clock_of(Rank rank) {
  return WrongClock(seconds(100 * rank), 0.2 * rank);
}

struct Traced : ::testing::Test {
  Traced() { std::filesystem::remove_all(file.parent_path()); }
  ~Traced() override { std::filesystem::remove_all(file.parent_path()); }

  json written() const {
    std::ifstream stream(file);
    return json::parse(stream);
  }

  std::filesystem::path file = std::filesystem::temp_directory_path() /
                               ("gradwire-trace-" + std::to_string(::getpid())) / "trace.json";
};

void expect_none(const std::vector<std::string>& errors) {
  EXPECT_THAT(errors, Each(IsEmpty()));
}

std::unique_ptr<TracePeers> peers_of(Communicator& communicator) {
  return trace_peers(std::shared_ptr<Communicator>(std::shared_ptr<void>(), &communicator));
}

TEST_F(Traced, ClocksOfAllRanksAreAlignedWithinTheErrorThatIsTold) {
  LocalJob job(3);
  const SteadyClock right;
  std::atomic<std::int64_t> begin{0};
  std::optional<TraceSummary> summary;
  expect_none(job.run([&](Rank rank, Communicator& communicator) {
    const auto clock = clock_of(rank);
    TraceSession session({.file = file, .host = "host-" + std::to_string(rank)},
                         peers_of(communicator), clock);
    for (int i = 0; i < 300; ++i) communicator.barrier().wait();  // Meanwhile clocks drift apart.
    // One event at one true time, as each rank's clock shows it.
    if (rank == 0) begin = right.now().time_since_epoch().count();
    communicator.barrier().wait();
    const Time moment(Duration(begin.load()));
    session.recorder()->record(TraceKind::step, "", 0, clock.of(moment),
                               clock.of(moment + milliseconds(30)), 4);
    const auto found = session.finish();
    EXPECT_EQ(found.has_value(), rank == 0);
    if (rank == 0) summary = found;
  }));
  ASSERT_TRUE(summary);
  EXPECT_EQ(summary->ranks.size(), 3u);
  EXPECT_EQ(summary->spans, 3u);
  EXPECT_EQ(summary->ranks[2].host, "host-2");
  EXPECT_GT(summary->clock_error, Duration{});
  EXPECT_LT(summary->clock_error, seconds(50)) << "else this shows nothing: clocks are 100 s apart";
  std::map<int, double> begins;
  const auto trace = written();
  for (const auto& event : trace.at("traceEvents")) {
    if (event.at("ph") == "X") begins[event.at("pid")] = event.at("ts");
  }
  ASSERT_EQ(begins.size(), 3u);
  const double error = static_cast<double>(summary->clock_error.count()) / 1e3 + 1;
  EXPECT_NEAR(begins[1], begins[0], error);
  EXPECT_NEAR(begins[2], begins[0], error);
}

TEST_F(Traced, WithoutAFileNothingIsRecordedAndNothingSent) {
  LocalJob job(2);
  expect_none(job.run([&](Rank, Communicator& communicator) {
    const auto before = communicator.payload_bytes_sent();
    const SteadyClock clock;
    TraceSession session({}, peers_of(communicator), clock);
    EXPECT_EQ(session.recorder(), nullptr);
    EXPECT_FALSE(session.finish());
    EXPECT_EQ(communicator.payload_bytes_sent(), before);
  }));
  EXPECT_FALSE(std::filesystem::exists(file));
}

TEST_F(Traced, KeepsTheNewestSpansOfEachRankAndSaysHowManyAreGone) {
  LocalJob job(2);
  std::optional<TraceSummary> summary;
  expect_none(job.run([&](Rank rank, Communicator& communicator) {
    const SteadyClock clock;
    TraceSession session({.file = file, .spans = 10}, peers_of(communicator), clock);
    for (int i = 0; i < 25; ++i) {
      const TraceStep step(session.recorder(), i);
      const TraceScope scope(session.recorder(), TraceKind::forward);
    }
    if (const auto found = session.finish(); rank == 0) summary = found;
  }));
  ASSERT_TRUE(summary);
  EXPECT_EQ(summary->spans, 20u);
  EXPECT_EQ(summary->dropped, 80u);
  EXPECT_EQ(summary->ranks[1].steps, 5u);
  int spans = 0;
  const auto trace = written();
  for (const auto& event : trace.at("traceEvents")) {
    if (event.at("ph") != "X") continue;
    EXPECT_GE(event.at("args").at("step"), 20);
    ++spans;
  }
  EXPECT_EQ(spans, 20);
}

TEST_F(Traced, AFileThatCannotBeWrittenIsAnErrorAtTheBeginning) {
  LocalJob job(2);
  const auto errors = job.run([&](Rank rank, Communicator& communicator) {
    const SteadyClock clock;
    try {
      TraceSession session({.file = "/proc/none/trace.json"}, peers_of(communicator), clock);
    } catch (const Exception& error) {
      communicator.abort(error.what());
      EXPECT_EQ(error.kind() == ErrorKind::system, rank == 0);
      throw;
    }
  });
  for (const auto& error : errors) EXPECT_THAT(error, HasSubstr("/proc/none/trace.json"));
}

TEST_F(Traced, AnUnfinishedSessionLeavesNoFile) {
  LocalJob job(1);
  expect_none(job.run([&](Rank, Communicator& communicator) {
    const SteadyClock clock;
    const TraceSession session({.file = file}, peers_of(communicator), clock);
  }));
  EXPECT_FALSE(std::filesystem::exists(file));
  EXPECT_TRUE(std::filesystem::is_empty(file.parent_path()));
}

}  // namespace
}  // namespace gradwire
