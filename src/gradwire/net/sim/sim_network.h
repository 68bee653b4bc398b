#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <queue>
#include <vector>

#include "gradwire/base/random.h"
#include "gradwire/base/types.h"
#include "gradwire/net/sim/byte_queue.h"
#include "gradwire/net/transport.h"

namespace gradwire {

/// What one simulated network port does.
struct SimPort {
  Duration latency = std::chrono::microseconds(30);  ///< One way.
  double bytes_per_second = 1.25e8;                  ///< Each direction.
};

/// A simulated host: its ranks share its ports, one a rail. Between its ranks there is one stream,
/// over `inside`, which each of them has for itself.
struct SimHost {
  std::vector<SimPort> rails;
  SimPort inside = {.latency = std::chrono::microseconds(1), .bytes_per_second = 4e9};
};

struct SimOptions {
  std::uint64_t seed = 1;
  std::size_t window_bytes = 1 << 20;  ///< Written and not yet read, per stream.
  std::size_t unit_bytes = 64 * 1024;  ///< Streams share a port in units of this size.
  std::size_t train_bytes = 1;         ///< As Transport::train_bytes().
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
/// program, without a socket. Each port sends one unit after the other and receives one after the
/// other; a stream keeps its order whatever is late. What has arrived is acknowledged one latency
/// later (Transport::delivered), and can be read whatever then happens to the stream, unless this
/// end closes it.
class SimNetwork {
 public:
  /// One rank a host, with one rail.
  SimNetwork(std::vector<SimPort> ports, const SimOptions& options);
  /// Rank r runs on hosts[host_of[r]]. Two ranks have as many rails as the host with fewer.
  SimNetwork(std::vector<SimHost> hosts, std::vector<int> host_of, const SimOptions& options);
  ~SimNetwork();

  /// The transport of one rank.
  Transport& endpoint(Rank rank);

  Time now() const { return now_; }

  /// The next event that is not later than `until`, after moving the time to it. Nothing: there is
  /// none, and it is `until` now.
  std::optional<SimEvent> next(Time until);

  /// The process ends: its streams end after the bytes that were under way.
  void kill(Rank rank);
  /// Unplugs the cables of the rank's host, or one: nothing is sent or received there until mend(),
  /// and no event tells.
  void cut(Rank rank);
  void cut(Rank rank, int rail);
  /// Plugs a cable in again. As TCP does, each stream retransmits what has not been acknowledged.
  void mend(Rank rank, int rail);
  /// The port is this fast from now on.
  void set_speed(Rank rank, int rail, double bytes_per_second);
  /// The process stands still until then.
  void freeze(Rank rank, Time until);
  bool frozen(Rank rank) const { return frozen_until(rank) > now_; }
  Time frozen_until(Rank rank) const {
    return processes_[static_cast<std::size_t>(rank)].frozen_until;
  }
  bool killed(Rank rank) const { return processes_[static_cast<std::size_t>(rank)].killed; }
  /// The connections between two ranks break, or one of them, both ways, with what was under way.
  void reset(Rank a, Rank b);
  void reset(Rank a, Rank b, int rail);
  /// One bit of the next unit from `from` to `to` arrives turned round.
  void flip_bit(Rank from, Rank to, int rail = 0);

 private:
  class Endpoint;
  struct Path {
    Rank from = -1;
    Rank to = -1;
    int rail = 0;

    Path reversed() const { return {to, from, rail}; }
  };
  enum class EventKind : std::uint8_t { deliver, end, broken, readable, writable };
  struct Event {
    Time at;
    std::uint64_t order = 0;
    EventKind kind = EventKind::deliver;
    Path path;
    std::vector<std::byte> bytes;
  };
  struct Acknowledgement {
    Time at;
    std::size_t bytes = 0;
  };
  struct Stream {
    ByteQueue readable;
    std::size_t in_window = 0;
    Time last_arrival{};
    std::deque<Acknowledgement> acknowledgements;  ///< On their way back.
    std::size_t delivered = 0;
    std::size_t unacknowledged = 0;  ///< Arrived, but the acknowledgement was lost.
    std::vector<Event> lost;         ///< Units (and the end) that a cut link has dropped, in order.
    bool writer_waits = false;
    bool ended = false;   ///< No more bytes will be written.
    bool at_end = false;  ///< The end has arrived.
    bool broken = false;
    bool flip_next = false;
  };
  struct Port {
    SimPort does;
    Time egress_free{};
    Time ingress_free{};
    bool cut = false;
  };
  struct Process {
    int host = 0;
    Port inside;
    Time frozen_until{};
    bool killed = false;
  };
  struct Later {
    bool operator()(const Event& a, const Event& b) const {
      return a.at != b.at ? a.at > b.at : a.order > b.order;
    }
  };

  Result<std::size_t> write(Path path, std::span<const ConstBytes> pieces);
  Result<std::size_t> read(Path path, std::span<const Bytes> pieces);
  std::size_t delivered(Path path);
  void close(Path path);

  int rails(Rank a, Rank b) const;
  Stream& stream(Path path);
  Port& port(Rank rank, Path path);
  Process& process(Rank rank) { return processes_[static_cast<std::size_t>(rank)]; }
  bool severed(Path path) { return port(path.from, path).cut || port(path.to, path).cut; }
  template <class Visit>
  void for_each_path(Rank rank, int rail, Visit visit);
  void retransmit(Path path);
  Duration latency(Path path);
  std::size_t part_of(std::size_t size);
  std::size_t send(Path path, std::span<const ConstBytes> pieces, std::size_t bytes);
  void dispatch(Path path, std::vector<std::byte> bytes);
  Time arrival(Path path, std::size_t bytes);
  void make_room(Path path, std::size_t bytes);
  void take_acknowledgements(Stream& stream);
  void schedule(Time at, EventKind kind, Path path, std::vector<std::byte> bytes = {});
  std::optional<SimEvent> apply(Event event);
  bool deliver(Event event);

  SimOptions options_;
  Random random_;
  Time now_{};
  std::uint64_t order_ = 0;
  std::vector<std::vector<Port>> ports_;  ///< By host and rail.
  std::vector<Process> processes_;
  std::size_t most_rails_ = 1;
  std::vector<Stream> streams_;
  std::vector<std::unique_ptr<Endpoint>> endpoints_;
  std::priority_queue<Event, std::vector<Event>, Later> events_;
};

}  // namespace gradwire
