#include "gradwire/host/wait_meter.h"

#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "gradwire/train/parallel/rank_functions.h"
#include "tests/support/thread_state.h"
#include "tests/train/pipeline_model.h"

/// Waits for another rank, which begins its part when this one waits.
namespace gradwire::test {
namespace {

using std::chrono::milliseconds;
using ::testing::Contains;

/// A clock that all ranks share. A rank can delay the others by a time that the test sets.
class SharedTime {
 public:
  /// The clock of one rank.
  class OfRank final : public Clock {
   public:
    explicit OfRank(SharedTime& time) : time_(time) {}
    Time now() const override {
      time_.reader_ = ::gettid();
      time_.read_ = true;
      time_.read_.notify_all();
      return Time(Duration(time_.now_));
    }

   private:
    SharedTime& time_;
  };

  /// From now on, delay() waits for a reading.
  void forget_readings() { read_ = false; }
  /// Waits until the other rank has read the clock and sleeps, because it waits; then time passes.
  void delay(Duration duration) {
    read_.wait(false);
    while (thread_state(reader_) != 'S') std::this_thread::yield();
    now_ += duration.count();
  }

 private:
  std::atomic<bool> read_ = false;
  std::atomic<pid_t> reader_ = 0;
  std::atomic<Duration::rep> now_ = 0;
};

std::vector<std::string> waits_in(const TraceRecorder& trace, Duration at_least) {
  const TraceLog log = trace.log();
  std::vector<std::string> names;
  for (const TraceSpan& span : log.spans) {
    if (span.kind == TraceKind::wait && span.end - span.begin >= at_least) {
      names.push_back(log.names[span.name]);
    }
  }
  return names;
}

/// Passes its input on, after a delay if there is one.
struct DelayedImpl : torch::nn::Module {
  explicit DelayedImpl(std::function<void()> d) : delay(std::move(d)) {}
  torch::Tensor forward(const torch::Tensor& x) {
    if (is_training()) delay();
    return x * scale;
  }
  std::function<void()> delay;
  torch::Tensor scale = register_parameter("scale", torch::ones({1}));
};
TORCH_MODULE(Delayed);

TEST(WaitMeter, MeasuresTheWaitForASlowStageAndNamesIt) {
  SharedTime time;
  std::atomic<bool> slow = false;  // Changes between two barriers.
  on_ranks(2, [&](const ProcessGroup& group) {
    const auto clock = std::make_shared<SharedTime::OfRank>(time);
    const SteadyClock quiet;
    const bool waits = group->getRank() == 1;
    TraceRecorder trace(waits ? static_cast<const Clock&>(*clock) : quiet);
    Layers layers;
    layers.add("first", [&] {
      return Delayed([&] {
        if (slow && !waits) time.delay(milliseconds(70));
      });
    });
    layers.add("last", [] { return Delayed([] {}); });
    auto options = pipeline_options(group, "1f1b", 1);
    options.cut = {1, 1};
    if (waits) options.data.options = {.clock = clock, .trace = &trace};
    Pipeline model(layers, options);
    const auto step = [&] {
      const auto batch = pipeline_batch(4, 0);
      model.train_step(batch.inputs, batch.targets);
      group->barrier()->wait();
    };
    step();
    if (waits) {
      EXPECT_EQ(model.stats().exposed, Duration{}) << "no time has passed";
      time.forget_readings();
      slow = true;
    }
    group->barrier()->wait();
    step();
    if (!waits) return;
    EXPECT_EQ(model.stats().exposed, milliseconds(70));
    EXPECT_THAT(waits_in(trace, milliseconds(70)), Contains("wait for activation of stage 0"));
  });
}

TEST(WaitMeter, MeasuresTheSumsOfParallelLayers) {
  SharedTime time;
  on_ranks(2, [&](const ProcessGroup& group) {
    const bool waits = group->getRank() == 1;
    const auto clock = std::make_shared<SharedTime::OfRank>(time);
    WaitMeter meter(clock, nullptr);
    if (waits) {
      const WaitScope scope(meter);
      collective::sum(torch::ones({3}), group);
    } else {
      time.delay(milliseconds(40));
      collective::sum(torch::ones({3}), group);
    }
    EXPECT_EQ(meter.waited(), waits ? milliseconds(40) : Duration{});
  });
}

TEST(WaitMeter, IgnoresWaitsOutsideOfItsScope) {
  SharedTime time;
  WaitMeter meter(std::make_shared<SharedTime::OfRank>(time), nullptr);
  const MeasuredWait before("outside");
  const WaitScope scope(meter);
  EXPECT_EQ(meter.waited(), Duration{});
}

}  // namespace
}  // namespace gradwire::test
