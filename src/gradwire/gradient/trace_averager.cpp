#include "gradwire/gradient/trace_averager.h"

#include <mutex>
#include <utility>

#include <fmt/format.h>

#include "gradwire/base/element.h"

namespace gradwire {
namespace {

/// Buckets in flight. The span of a bucket ends when either the averager's own thread or wait()
/// first notices its completion.
class BucketSpans {
 public:
  explicit BucketSpans(TraceRecorder& recorder) : recorder_(recorder) {}

  void begin(std::size_t bucket, std::uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    if (spans_.size() <= bucket) spans_.resize(bucket + 1);
    spans_[bucket] = {true, recorder_.step(), recorder_.now(), bytes};
  }

  void end(std::size_t bucket) {
    const std::lock_guard lock(mutex_);
    if (bucket >= spans_.size() || !std::exchange(spans_[bucket].open, false)) return;
    const auto& span = spans_[bucket];
    recorder_.record(TraceKind::communication, fmt::format("bucket {}", bucket), span.step,
                     span.begin, recorder_.now(), span.bytes);
  }

  void forget(std::size_t bucket) {
    const std::lock_guard lock(mutex_);
    spans_[bucket].open = false;
  }

 private:
  struct BucketSpan {
    bool open = false;
    std::int64_t step = -1;
    Time begin{};
    std::uint64_t bytes = 0;
  };

  TraceRecorder& recorder_;
  std::mutex mutex_;
  std::vector<BucketSpan> spans_;
};

class TracedAverager final : public Averager {
 public:
  TracedAverager(std::unique_ptr<Averager> averager, TraceRecorder& recorder)
      : recorder_(recorder),
        spans_(std::make_shared<BucketSpans>(recorder)),
        averager_(std::move(averager)) {
    averager_->on_finished([spans = spans_](std::size_t bucket) { spans->end(bucket); });
  }

  void start(std::size_t bucket, LentSpan data, int priority) override {
    spans_->begin(bucket, data.count * size_of(data.type));
    try {
      averager_->start(bucket, std::move(data), priority);
    } catch (...) {
      spans_->forget(bucket);
      throw;
    }
  }

  bool done(std::size_t bucket) override {
    const bool over = averager_->done(bucket);
    if (over) spans_->end(bucket);
    return over;
  }

  void wait(std::size_t bucket) override {
    if (done(bucket)) {
      averager_->wait(bucket);
      return;
    }
    const auto name = fmt::format("wait for bucket {}", bucket);
    {
      const TraceScope scope(&recorder_, TraceKind::wait, name);
      averager_->wait(bucket);
    }
    spans_->end(bucket);
  }

  void end_step() override { averager_->end_step(); }
  std::vector<State> state() override { return averager_->state(); }
  void load_state(const std::vector<SavedState>& saved) override { averager_->load_state(saved); }
  std::string describe() const override { return averager_->describe(); }
  void on_finished(std::function<void(std::size_t bucket)> finished) override {
    averager_->on_finished([spans = spans_, finished = std::move(finished)](std::size_t bucket) {
      spans->end(bucket);
      finished(bucket);
    });
  }

 private:
  TraceRecorder& recorder_;
  std::shared_ptr<BucketSpans> spans_;  ///< Shared with completion callbacks of the last buckets.
  std::unique_ptr<Averager> averager_;
};

}  // namespace

std::unique_ptr<Averager> trace_averager(std::unique_ptr<Averager> averager,
                                         TraceRecorder* recorder) {
  if (recorder == nullptr) return averager;
  return std::make_unique<TracedAverager>(std::move(averager), *recorder);
}

}  // namespace gradwire
