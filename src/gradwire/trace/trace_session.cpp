#include "gradwire/trace/trace_session.h"

#include <algorithm>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "gradwire/base/file.h"
#include "gradwire/trace/chrome_trace.h"
#include "gradwire/trace/step_trace.h"
#include "gradwire/trace/trace_clock.h"
#include "gradwire/trace/trace_collection.h"
#include "gradwire/trace/trace_rank.h"

namespace gradwire {
namespace {

/// Combines many short pieces into few writes.
class Buffered {
 public:
  explicit Buffered(AtomicFile& file) : file_(file) {}

  void add(std::string_view text) {
    text_ += text;
    if (text_.size() >= kBytes) flush();
  }
  void flush() {
    file_.write(text_.data(), text_.size());
    text_.clear();
  }

 private:
  static constexpr std::size_t kBytes = std::size_t{1} << 20;

  AtomicFile& file_;
  std::string text_;
};

std::function<void(std::string_view)> adding_to(Buffered& buffer) {
  return [&buffer](std::string_view text) { buffer.add(text); };
}

void add(TraceSummary& summary, const RankTrace& trace) {
  const auto steps = break_down(trace.log);
  summary.ranks.push_back(
      {.rank = trace.rank, .host = trace.host, .steps = steps.size(), .step = medians_of(steps)});
  summary.spans += trace.log.spans.size();
  summary.dropped += trace.log.dropped;
  summary.clock_error = std::max(summary.clock_error, trace.clock.error());
}

}  // namespace

class TraceSession::Recording {
 public:
  Recording(TraceOptions options, std::unique_ptr<TracePeers> peers, const Clock& clock)
      : options_(std::move(options)),
        peers_(std::move(peers)),
        clock_(clock),
        recorder_(clock, options_.spans) {
    if (peers_->rank() == 0) file_.emplace(options_.file);
    origin_ = clock_.now();
    first_ = read_clock(*peers_, clock_);
  }

  TraceRecorder& recorder() { return recorder_; }

  void add_memory(MemoryTimeline memory, Time begin) {
    memory_ = std::move(memory);
    memory_begin_ = begin;
  }

  std::optional<TraceSummary> finish() {
    const RankTrace own{.rank = peers_->rank(),
                        .host = options_.host,
                        .clock = {.first = first_, .last = read_clock(*peers_, clock_)},
                        .log = recorder_.log(),
                        .memory = memory_,
                        .memory_begin = memory_begin_};
    if (peers_->rank() == 0) return write(own);
    gather_traces(*peers_, own, [](const RankTrace&) {});
    return std::nullopt;
  }

 private:
  TraceSummary write(const RankTrace& own) {
    TraceSummary summary{.file = options_.file.string()};
    Buffered buffer(*file_);
    ChromeTraceWriter writer(adding_to(buffer), origin_);
    gather_traces(*peers_, own, [&](RankTrace trace) {
      trace = aligned(std::move(trace));
      add(summary, trace);
      writer.add(trace);
    });
    writer.finish();
    buffer.flush();
    file_->commit();
    return summary;
  }

  TraceOptions options_;
  std::unique_ptr<TracePeers> peers_;
  const Clock& clock_;
  TraceRecorder recorder_;
  std::optional<AtomicFile> file_;  ///< On rank 0.
  Time origin_{};
  ClockReading first_;
  MemoryTimeline memory_;
  Time memory_begin_{};
};

TraceSession::TraceSession(TraceOptions options, std::unique_ptr<TracePeers> peers,
                           const Clock& clock) {
  if (options.file.empty()) return;
  recording_ = std::make_unique<Recording>(std::move(options), std::move(peers), clock);
}

TraceSession::~TraceSession() = default;

TraceRecorder* TraceSession::recorder() {
  return recording_ ? &recording_->recorder() : nullptr;
}

void TraceSession::add_memory(MemoryTimeline memory, Time begin) {
  if (recording_) recording_->add_memory(std::move(memory), begin);
}

std::optional<TraceSummary> TraceSession::finish() {
  return recording_ ? recording_->finish() : std::nullopt;
}

}  // namespace gradwire
