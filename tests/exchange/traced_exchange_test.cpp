#include "gradwire/exchange/traced_exchange.h"

#include <array>
#include <map>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/base/error.h"
#include "gradwire/exchange/make_exchange.h"
#include "tests/support/exchanging.h"

namespace gradwire::exchange {
namespace {

using std::chrono::milliseconds;

struct ManualClock final : Clock {
  Time now() const override { return time; }
  Time time{};
};

/// The state of an operation that completes when the test decides.
struct ManualState {
  bool over = false;
  std::function<void()> callback;

  void complete() {
    over = true;
    if (callback) callback();
  }
};

struct ManualWork final : WorkState {
  ManualWork(ManualState& s, ManualClock& c) : state(s), clock(c) {}

  bool done() override { return state.over; }
  void wait() override {
    if (state.over) return;
    clock.time += milliseconds(10);
    state.complete();
  }
  void on_done(std::function<void(const Work&)> callback) override {
    state.callback = [callback = std::move(callback)] { callback(Work()); };
  }

  ManualState& state;
  ManualClock& clock;
};

struct ManualExchange final : Exchange {
  explicit ManualExchange(ManualClock& c) : clock(c) {}

  Work start(std::string operation, int priority) {
    if (refuses) throw Exception(ErrorKind::invalid_argument, "no");
    last = std::move(operation);
    last_priority = priority;
    state = {};
    return Work(std::make_shared<ManualWork>(state, clock));
  }
  Work all_reduce(std::size_t, LentSpan, int priority) override {
    return start("all_reduce", priority);
  }
  Work reduce_scatter(std::size_t, LentSpan, LentSpan, int priority) override {
    return start("reduce_scatter", priority);
  }
  Work all_gather(std::size_t, LentConstSpan, LentSpan, int priority) override {
    return start("all_gather", priority);
  }
  ExchangeTraits traits() const override { return {.order = OperationOrder::by_kind}; }
  void end_pass() override { ++passes; }
  std::string describe() const override { return "manual"; }
  void load_state(const std::vector<SavedState>& saved) override { loaded = saved.size(); }

  ManualClock& clock;
  ManualState state;
  std::string last;
  bool refuses = false;
  int last_priority = 0;
  int passes = 0;
  std::size_t loaded = 0;
};

struct TracedExchange : ::testing::Test {
  TracedExchange() {
    auto own = std::make_unique<ManualExchange>(clock);
    inner = own.get();
    exchange = traced_exchange(std::move(own), &recorder);
  }

  void pass(int ms) { clock.time += milliseconds(ms); }
  Work start(std::size_t unit) { return exchange->all_reduce(unit, span, 3); }
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
  ManualExchange* inner = nullptr;
  std::unique_ptr<Exchange> exchange;
};

TEST_F(TracedExchange, AnOperationLastsFromItsStartUntilItsResultIsInPlace) {
  recorder.begin_step(6);
  pass(1);
  const Work work = start(2);
  pass(4);
  recorder.begin_step(7);
  inner->state.complete();
  pass(5);
  work.wait();
  const auto unit = only(TraceKind::communication);
  EXPECT_EQ(unit.begin, at(1));
  EXPECT_EQ(unit.end, at(5)) << "not only when it was waited for";
  EXPECT_EQ(unit.bytes, 20u);
  EXPECT_EQ(unit.step, 6) << "the one it began in";
  EXPECT_EQ(recorder.log().names[unit.name], "bucket 2");
  EXPECT_EQ(recorder.log().spans.size(), 1u) << "nothing was waited for";
}

TEST_F(TracedExchange, AWaitThatBlocksIsOne) {
  const Work work = start(1);
  pass(3);
  work.wait();
  const auto wait = only(TraceKind::wait);
  EXPECT_EQ(wait.begin, at(3));
  EXPECT_EQ(wait.end, at(13));
  EXPECT_EQ(recorder.log().names[wait.name], "wait for bucket 1");
  EXPECT_EQ(only(TraceKind::communication).end, at(13));
}

TEST_F(TracedExchange, NamesOperationsByTheirKind) {
  exchange->reduce_scatter(4, span, span, 0).wait();
  exchange->all_gather(5, span, span, 0).wait();
  EXPECT_THAT(recorder.log().names,
              ::testing::IsSupersetOf({"reduce 4", "wait for reduce 4", "gather 5"}));
}

TEST_F(TracedExchange, RefusedOperationsAreNotRecorded) {
  inner->refuses = true;
  EXPECT_THROW(start(0), Exception);
  EXPECT_TRUE(recorder.log().spans.empty());
}

TEST_F(TracedExchange, ForwardsTheRest) {
  start(0).wait();
  EXPECT_EQ(inner->last, "all_reduce");
  exchange->reduce_scatter(0, span, span, 3).wait();
  EXPECT_EQ(inner->last, "reduce_scatter");
  exchange->all_gather(0, span, span, 3).wait();
  EXPECT_EQ(inner->last, "all_gather");
  EXPECT_EQ(inner->last_priority, 3);
  exchange->end_pass();
  exchange->load_state({{}, {}});
  EXPECT_EQ(inner->passes, 1);
  EXPECT_EQ(inner->loaded, 2u);
  EXPECT_EQ(exchange->traits().order, OperationOrder::by_kind);
  EXPECT_EQ(exchange->describe(), "manual");
}

TEST_F(TracedExchange, WithoutARecorderItIsTheOther) {
  auto own = std::make_unique<ManualExchange>(clock);
  const auto* before = own.get();
  EXPECT_EQ(traced_exchange(std::move(own), nullptr).get(), before);
}

TEST(TracedExchanges, RecordGathersOverACommunicator) {
  SteadyClock clock;
  TraceRecorder trace(clock);
  test::LocalJob job(2);
  const auto errors = job.run([&](Rank rank, Communicator& c) {
    const auto exchange =
        make_exchange(test::shared(c), std::vector<UnitShape>(4), {}, rank == 0 ? &trace : nullptr);
    std::vector<float> part(3), whole(6);
    exchange
        ->all_gather(3, {part.data(), 3, DataType::float32}, {.data = whole.data(), .count = 6}, 0)
        .wait();
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
  EXPECT_THAT(trace.log().names, ::testing::Contains("gather 3"));
}

}  // namespace
}  // namespace gradwire::exchange
