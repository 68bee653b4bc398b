#include "gradwire/cli/probe/round_trips.h"

#include <algorithm>
#include <array>
#include <cstdint>

namespace gradwire {
namespace {

/// Excluded: at first caches are cold and the peer is asleep.
constexpr int kWarmUpTrips = 10;

using Note = std::array<std::byte, 8>;

}  // namespace

Result<RoundTrips> measure_round_trips(Wire& wire, StreamId stream, int count, TimeOfDay own_time) {
  const Clock& clock = wire.clock();
  std::vector<Duration> times;
  RoundTrips found{.shortest = Duration::max()};
  for (int i = -kWarmUpTrips; i < count; ++i) {
    Note note = {};
    const Time begin = clock.now();
    const Duration day = own_time();  // Read last, or a pause before it would count as offset.
    if (Status sent = wire.send(stream, note); !sent) return tl::unexpected<Error>(sent.error());
    if (Status got = wire.receive_soon(stream, note); !got) {
      return tl::unexpected<Error>(got.error());
    }
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

Status answer_round_trips(Wire& wire, StreamId stream, int count, TimeOfDay own_time) {
  for (int i = -kWarmUpTrips; i < count; ++i) {
    Note note;
    if (Status got = wire.receive_soon(stream, note); !got) return got;
    store_little_endian(note.data(), static_cast<std::uint64_t>(own_time().count()));
    if (Status sent = wire.send(stream, note); !sent) return sent;
  }
  return {};
}

}  // namespace gradwire
