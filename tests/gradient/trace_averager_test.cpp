#include "gradwire/gradient/trace_averager.h"

#include <array>
#include <future>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/base/error.h"
#include "gradwire/gradient/make_averager.h"
#include "tests/comm/local_job.h"

namespace gradwire {
namespace {

using std::chrono::milliseconds;

struct ManualClock final : Clock {
  Time now() const override { return time; }
  Time time{};
};

/// An averager whose buckets complete when the test decides.
struct ManualAverager final : Averager {
  explicit ManualAverager(ManualClock& c) : clock(c) {}

  void start(std::size_t bucket, LentSpan, int priority) override {
    if (refuses) throw Exception(ErrorKind::invalid_argument, "no");
    last_priority = priority;
    over[bucket] = false;
  }
  bool done(std::size_t bucket) override { return over[bucket]; }
  void wait(std::size_t bucket) override {
    if (!over[bucket]) clock.time += milliseconds(10);
    over[bucket] = true;
  }
  void end_step() override { ++steps; }
  std::vector<State> state() override { return {{"a", {}}}; }
  void load_state(const std::vector<SavedState>& saved) override { loaded = saved.size(); }
  std::string describe() const override { return "manual"; }
  void on_finished(std::function<void(std::size_t)> tell) override { finished = std::move(tell); }

  ManualClock& clock;
  std::array<bool, 4> over = {true, true, true, true};
  bool refuses = false;
  int last_priority = 0;
  int steps = 0;
  std::size_t loaded = 0;
  std::function<void(std::size_t)> finished;
};

struct TracedAverager : ::testing::Test {
  TracedAverager() {
    auto own = std::make_unique<ManualAverager>(clock);
    inner = own.get();
    averager = trace_averager(std::move(own), &recorder);
  }

  void pass(int ms) { clock.time += milliseconds(ms); }
  void start(std::size_t bucket) { averager->start(bucket, span, 3); }
  TraceSpan only(TraceKind kind) const {
    TraceSpan found;
    int count = 0;
    for (const auto& one : recorder.log().spans) {
      if (one.kind != kind) continue;
      found = one;
      ++count;
    }
    EXPECT_EQ(count, 1);
    return found;
  }
  static Time at(int ms) { return Time(milliseconds(ms)); }

  ManualClock clock;
  TraceRecorder recorder{clock};
  std::array<float, 5> data{};
  LentSpan span{data.data(), data.size(), DataType::float32, nullptr};
  ManualAverager* inner = nullptr;
  std::unique_ptr<Averager> averager;
};

TEST_F(TracedAverager, ABucketLastsFromStartUntilItsMeanIsInPlace) {
  recorder.begin_step(6);
  pass(1);
  start(2);
  pass(4);
  recorder.begin_step(7);
  inner->over[2] = true;
  inner->finished(2);
  pass(5);
  averager->wait(2);
  const auto bucket = only(TraceKind::communication);
  EXPECT_EQ(bucket.begin, at(1));
  EXPECT_EQ(bucket.end, at(5)) << "not only when it was waited for";
  EXPECT_EQ(bucket.bytes, 20u);
  EXPECT_EQ(bucket.step, 6) << "the one it began in";
  EXPECT_EQ(recorder.log().names[bucket.name], "bucket 2");
  EXPECT_EQ(recorder.log().spans.size(), 1u) << "nothing was waited for";
}

TEST_F(TracedAverager, AWaitIsOne) {
  start(1);
  pass(3);
  averager->wait(1);
  const auto wait = only(TraceKind::wait);
  EXPECT_EQ(wait.begin, at(3));
  EXPECT_EQ(wait.end, at(13));
  EXPECT_EQ(only(TraceKind::communication).end, at(13)) << "where the averager does not tell";
}

TEST_F(TracedAverager, AskingEndsABucketToo) {
  start(0);
  pass(3);
  EXPECT_FALSE(averager->done(0));
  inner->over[0] = true;
  EXPECT_TRUE(averager->done(0));
  pass(3);
  EXPECT_TRUE(averager->done(0));
  EXPECT_EQ(only(TraceKind::communication).end, at(3));
}

TEST_F(TracedAverager, RefusedBucketsAreNotRecorded) {
  inner->refuses = true;
  EXPECT_THROW(start(0), Exception);
  EXPECT_TRUE(averager->done(0));
  EXPECT_TRUE(recorder.log().spans.empty());
}

TEST_F(TracedAverager, DoesWhatTheOtherDoes) {
  start(0);
  averager->end_step();
  averager->load_state({{}, {}});
  EXPECT_EQ(inner->last_priority, 3);
  EXPECT_EQ(inner->steps, 1);
  EXPECT_EQ(inner->loaded, 2u);
  EXPECT_EQ(averager->state().size(), 1u);
  EXPECT_EQ(averager->describe(), "manual");
  std::size_t told = 9;
  averager->on_finished([&told](std::size_t bucket) { told = bucket; });
  inner->finished(0);
  EXPECT_EQ(told, 0u);
  only(TraceKind::communication);
}

TEST_F(TracedAverager, WithoutARecorderItIsTheOther) {
  auto own = std::make_unique<ManualAverager>(clock);
  const auto* before = own.get();
  EXPECT_EQ(trace_averager(std::move(own), nullptr).get(), before);
}

struct FinishedCallback : ::testing::TestWithParam<const char*> {};

TEST_P(FinishedCallback, RunsWithoutAWaiter) {
  test::LocalJob job(2);
  const auto errors = job.run([](Rank, Communicator& communicator) {
    constexpr std::size_t kCount = 10'000;
    const std::vector<BucketShape> shapes = {
        {.count = kCount, .tensors = {{.name = "a", .rows = 100, .columns = 100}}}};
    const auto averager =
        make_averager(std::shared_ptr<Communicator>(std::shared_ptr<void>(), &communicator), shapes,
                      {.codec = GetParam()});
    std::promise<std::size_t> over;
    averager->on_finished([&over](std::size_t bucket) { over.set_value(bucket); });
    std::vector<float> values(kCount, 1);
    averager->start(0, {values.data(), kCount, DataType::float32, nullptr}, 0);
    auto told = over.get_future();
    ASSERT_EQ(told.wait_for(std::chrono::seconds(60)), std::future_status::ready);
    EXPECT_EQ(told.get(), 0u);
    averager->wait(0);
    averager->end_step();
  });
  EXPECT_THAT(errors, ::testing::Each(::testing::IsEmpty()));
}

INSTANTIATE_TEST_SUITE_P(OfEachKind, FinishedCallback,
                         ::testing::Values("none", "int8", "power_sgd:1", "auto:int8"));

}  // namespace
}  // namespace gradwire
