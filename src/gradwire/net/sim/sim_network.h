#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <queue>
#include <vector>

#include "gradwire/base/random.h"
#include "gradwire/base/types.h"
#include "gradwire/net/transport.h"

namespace gradwire {

/// What one simulated rank's network port does.
struct SimPort {
  Duration latency = std::chrono::microseconds(30);  ///< One way.
  double bytes_per_second = 1.25e8;                  ///< Each direction.
};

struct SimOptions {
  std::uint64_t seed = 1;
  std::size_t window_bytes = 1 << 20;  ///< Written and not yet read, per stream.
  std::size_t unit_bytes = 64 * 1024;  ///< Streams share a port in units of this size.
  bool short_io = false;               ///< Reads and writes take a random part of what they could.
  std::uint64_t stall_one_in = 0;  ///< One in so many units is late by up to max_stall; 0: none.
  Duration max_stall = std::chrono::milliseconds(50);
};

/// Something became possible on a stream of one rank.
struct SimEvent {
  Rank rank = -1;
  ReadyEvent ready;
};

/// Byte streams among ranks in one thread and virtual time, with seeded faults: what TCP does to a
/// program, without a socket. Each rank's port sends one unit after the other and receives one
/// after the other; a stream keeps its order whatever is late.
class SimNetwork {
 public:
  SimNetwork(std::vector<SimPort> ports, const SimOptions& options);
  ~SimNetwork();

  /// The transport of one rank.
  Transport& endpoint(Rank rank);

  Time now() const { return now_; }

  /// The next event that is not later than `until`, after moving the time to it. Nothing: there is
  /// none, and it is `until` now.
  std::optional<SimEvent> next(Time until);

  /// The process ends: its streams end after the bytes that were under way.
  void kill(Rank rank);
  /// The cable is out: nothing comes or goes any more, and nobody is told.
  void cut(Rank rank);
  /// The process stands still until then.
  void freeze(Rank rank, Time until);
  bool frozen(Rank rank) const {
    return hosts_[static_cast<std::size_t>(rank)].frozen_until > now_;
  }
  Time frozen_until(Rank rank) const { return hosts_[static_cast<std::size_t>(rank)].frozen_until; }
  bool killed(Rank rank) const { return hosts_[static_cast<std::size_t>(rank)].killed; }
  /// The connection between two ranks breaks, both ways, with what was under way.
  void reset(Rank a, Rank b);
  /// One bit of the next unit from `from` to `to` arrives turned round.
  void flip_bit(Rank from, Rank to);

 private:
  class Endpoint;
  struct Stream {
    std::deque<std::byte> readable;
    std::size_t in_window = 0;
    Time last_arrival{};
    bool writer_waits = false;
    bool ended = false;   ///< No more bytes will be written.
    bool at_end = false;  ///< The end has arrived.
    bool broken = false;
    bool flip_next = false;
  };
  struct Host {
    SimPort port;
    Time egress_free{};
    Time ingress_free{};
    Time frozen_until{};
    bool killed = false;
    bool cut = false;
  };
  enum class EventKind : std::uint8_t { deliver, end, broken, readable, writable };
  struct Event {
    Time at;
    std::uint64_t order = 0;
    EventKind kind = EventKind::deliver;
    Rank from = -1;
    Rank to = -1;
    std::vector<std::byte> bytes;
  };
  struct Later {
    bool operator()(const Event& a, const Event& b) const {
      return a.at != b.at ? a.at > b.at : a.order > b.order;
    }
  };

  Result<std::size_t> write(Rank from, Rank to, std::span<const ConstBytes> pieces);
  Result<std::size_t> read(Rank to, Rank from, std::span<const Bytes> pieces);
  void close(Rank from, Rank to);

  Stream& stream(Rank from, Rank to) {
    return streams_[static_cast<std::size_t>(from) * hosts_.size() + static_cast<std::size_t>(to)];
  }
  Host& host(Rank rank) { return hosts_[static_cast<std::size_t>(rank)]; }
  std::size_t part_of(std::size_t size);
  void dispatch(Rank from, Rank to, std::vector<std::byte> bytes);
  Time arrival(Rank from, Rank to, std::size_t bytes);
  void schedule(Time at, EventKind kind, Rank from, Rank to, std::vector<std::byte> bytes = {});
  std::optional<SimEvent> apply(Event event);
  Rank listener_of(const Event& event) const;

  SimOptions options_;
  Random random_;
  Time now_{};
  std::uint64_t order_ = 0;
  std::vector<Host> hosts_;
  std::vector<Stream> streams_;
  std::vector<std::unique_ptr<Endpoint>> endpoints_;
  std::priority_queue<Event, std::vector<Event>, Later> events_;
};

}  // namespace gradwire
