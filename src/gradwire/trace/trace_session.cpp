#include "gradwire/trace/trace_session.h"

#include <algorithm>
#include <string_view>

#include "gradwire/trace/chrome_trace.h"
#include "gradwire/trace/step_trace.h"

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

void add(TraceSummary& summary, const RankTrace& trace) {
  const auto steps = break_down(trace.log);
  summary.ranks.push_back(
      {.rank = trace.rank, .host = trace.host, .steps = steps.size(), .step = medians_of(steps)});
  summary.spans += trace.log.spans.size();
  summary.dropped += trace.log.dropped;
  summary.clock_error = std::max(summary.clock_error, trace.clock.error());
}

}  // namespace

TraceSession::TraceSession(TraceOptions options, std::unique_ptr<TracePeers> peers,
                           const Clock& clock)
    : options_(std::move(options)), peers_(std::move(peers)), clock_(clock) {
  if (options_.file.empty()) return;
  recorder_.emplace(clock_, options_.spans);
  if (peers_->rank() == 0) file_.emplace(options_.file);
  origin_ = clock_.now();
  first_ = read_clock(*peers_, clock_);
}

std::optional<TraceSummary> TraceSession::finish() {
  if (!recorder_) return std::nullopt;
  const RankTrace own{.rank = peers_->rank(),
                      .host = options_.host,
                      .clock = {.first = first_, .last = read_clock(*peers_, clock_)},
                      .log = recorder_->log(),
                      .memory = memory_,
                      .memory_begin = memory_begin_};
  if (peers_->rank() == 0) return write(own);
  gather_traces(*peers_, own, [](const RankTrace&) {});
  return std::nullopt;
}

TraceSummary TraceSession::write(const RankTrace& own) {
  TraceSummary summary{.file = options_.file.string()};
  Buffered buffer(*file_);
  ChromeTraceWriter writer([&buffer](std::string_view text) { buffer.add(text); }, origin_);
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

}  // namespace gradwire
