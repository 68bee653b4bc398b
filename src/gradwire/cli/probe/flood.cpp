#include "gradwire/cli/probe/flood.h"

#include <algorithm>
#include <limits>

namespace gradwire {
namespace {

constexpr std::size_t kBlock = 64 * 1024;
constexpr std::byte kMore{1};
constexpr std::byte kLast{2};

/// Share of the time at the beginning that Sink::rate() may exclude.
constexpr double kWarmUp = 0.3;

}  // namespace

Flood::Flood(StreamId stream) : stream_(stream), block_(kBlock, kMore) {}

Result<bool> Flood::advance(Wire& wire, bool over) {
  bool any = false;
  while (!done_) {
    if (sent_ == 0 && over) {
      last_ = true;
      block_.front() = kLast;
    }
    const ConstBytes rest = ConstBytes(block_).subspan(sent_);
    const auto taken = wire.transport().write(stream_, {&rest, 1});
    if (!taken) return tl::unexpected<Error>(taken.error());
    any = any || *taken > 0;
    sent_ += *taken;
    if (sent_ < kBlock) return any;
    sent_ = 0;
    done_ = last_;
    if (!over) return true;  // The caller checks the time and serves other streams.
  }
  return any;
}

Sink::Sink(StreamId stream) : stream_(stream), block_(kBlock) {}

Result<bool> Sink::advance(Wire& wire) {
  bool any = false;
  while (!ended_) {
    const auto got = wire.read_some(stream_, Bytes(block_).subspan(got_));
    if (!got) return tl::unexpected<Error>(got.error());
    any = any || *got > 0;
    got_ += *got;
    if (got_ < kBlock) return any;
    got_ = 0;
    ended_ = block_.front() == kLast;
    arrivals_.push_back(wire.clock().now());
  }
  return any;
}

double Sink::rate() const {
  if (arrivals_.size() < 2) return 0;
  const Time from = arrivals_.front() + std::chrono::duration_cast<Duration>(
                                            kWarmUp * (arrivals_.back() - arrivals_.front()));
  const auto later = std::ranges::lower_bound(arrivals_, from);
  return std::min(rate_since(arrivals_.begin()), rate_since(later));
}

double Sink::rate_since(std::vector<Time>::const_iterator first) const {
  const auto blocks = static_cast<double>(arrivals_.end() - first - 1);
  const double seconds = std::chrono::duration<double>(arrivals_.back() - *first).count();
  return seconds > 0 ? blocks * static_cast<double>(kBlock) / seconds
                     : std::numeric_limits<double>::max();
}

Status run_streams(Wire& wire, std::vector<Flood>& floods, std::vector<Sink>& sinks,
                   Duration duration) {
  const Clock& clock = wire.clock();
  const Time end = clock.now() + duration;
  const auto finished = [&] {
    return std::ranges::all_of(floods, &Flood::done) && std::ranges::all_of(sinks, &Sink::ended);
  };
  while (!finished()) {
    bool moved = false;
    const bool over = clock.now() >= end;
    for (Flood& flood : floods) {
      const auto advanced = flood.advance(wire, over);
      if (!advanced) return tl::unexpected<Error>(advanced.error());
      moved = moved || *advanced;
    }
    for (Sink& sink : sinks) {
      const auto advanced = sink.advance(wire);
      if (!advanced) return tl::unexpected<Error>(advanced.error());
      moved = moved || *advanced;
    }
    if (!moved && !finished() && !wire.wait()) {
      return failure(ErrorKind::timeout,
                     "no more bytes arrive: full-size packets may be lost on the path (an MTU "
                     "black hole); run gradwire doctor");
    }
  }
  return {};
}

}  // namespace gradwire
