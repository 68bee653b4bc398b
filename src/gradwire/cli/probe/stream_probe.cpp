#include "gradwire/cli/probe/stream_probe.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>

namespace gradwire::cli {
namespace {

/// Excluded: at first caches are cold and the peer is asleep.
constexpr int kWarmUpTrips = 10;

using Note = std::array<std::byte, 8>;

}  // namespace

Result<RoundTrips> measure_round_trips(Wire& wire, net::StreamId stream, int count,
                                       TimeOfDay own_time) {
  const Clock& clock = wire.clock();
  std::vector<Duration> times;
  RoundTrips found{.shortest = Duration::max()};
  for (int i = -kWarmUpTrips; i < count; ++i) {
    Note note = {};
    const Time begin = clock.now();
    const Duration day = own_time();  // Read last, or a pause before it would count as offset.
    GRADWIRE_RETURN_IF_ERROR(wire.send(stream, note));
    GRADWIRE_RETURN_IF_ERROR(wire.receive_soon(stream, note));
    const Duration one_way = (clock.now() - begin) / 2;
    if (i < 0) continue;
    times.push_back(one_way);
    if (one_way >= found.shortest) continue;
    found.shortest = one_way;
    const Duration theirs(
        static_cast<std::int64_t>(load_little_endian<std::uint64_t>(note.data())));
    found.clock_offset = day + one_way - theirs;
  }
  std::ranges::nth_element(times, times.begin() + count / 2);
  found.median = times[static_cast<std::size_t>(count / 2)];
  return found;
}

Status answer_round_trips(Wire& wire, net::StreamId stream, int count, TimeOfDay own_time) {
  for (int i = -kWarmUpTrips; i < count; ++i) {
    Note note;
    GRADWIRE_RETURN_IF_ERROR(wire.receive_soon(stream, note));
    store_little_endian(note.data(), static_cast<std::uint64_t>(own_time().count()));
    GRADWIRE_RETURN_IF_ERROR(wire.send(stream, note));
  }
  return {};
}

namespace {

constexpr std::size_t kBlock = 64 * 1024;
constexpr std::byte kMore{1};
constexpr std::byte kLast{2};

/// Share of the time at the beginning that Sink::rate() may exclude.
constexpr double kWarmUp = 0.3;

}  // namespace

Flood::Flood(net::StreamId stream) : stream_(stream), block_(kBlock, kMore) {}

Result<bool> Flood::advance(Wire& wire, bool over) {
  bool any = false;
  while (!done_) {
    if (sent_ == 0 && over) {
      last_ = true;
      block_.front() = kLast;
    }
    const ConstBytes rest = ConstBytes(block_).subspan(sent_);
    GRADWIRE_ASSIGN_OR_RETURN(const auto taken, wire.transport().write(stream_, {&rest, 1}));
    any = any || taken > 0;
    sent_ += taken;
    if (sent_ < kBlock) return any;
    sent_ = 0;
    done_ = last_;
    if (!over) return true;  // The caller checks the time and serves other streams.
  }
  return any;
}

Sink::Sink(net::StreamId stream) : stream_(stream), block_(kBlock) {}

Result<bool> Sink::advance(Wire& wire) {
  bool any = false;
  while (!ended_) {
    GRADWIRE_ASSIGN_OR_RETURN(const auto got, wire.read_some(stream_, Bytes(block_).subspan(got_)));
    any = any || got > 0;
    got_ += got;
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
      GRADWIRE_ASSIGN_OR_RETURN(const auto advanced, flood.advance(wire, over));
      moved = moved || advanced;
    }
    for (Sink& sink : sinks) {
      GRADWIRE_ASSIGN_OR_RETURN(const auto advanced, sink.advance(wire));
      moved = moved || advanced;
    }
    if (!moved && !finished() && !wire.wait()) {
      return failure(ErrorKind::timeout,
                     "no more bytes arrive: full-size packets may be lost on the path (an MTU "
                     "black hole); run gradwire doctor");
    }
  }
  return {};
}

}  // namespace gradwire::cli
