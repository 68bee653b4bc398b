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

namespace gradwire::net {

/// Performance of a simulated network port.
struct SimPort {
  Duration latency = std::chrono::microseconds(30);  ///< One way.
  double bytes_per_second = 1.25e8;                  ///< Per direction.
};

/// A simulated host. Its ranks share its ports, one per rail. Ranks on the same host are connected
/// by one stream over `inside`; each rank has its own such port.
struct SimHost {
  std::vector<SimPort> rails;
  SimPort inside = {.latency = std::chrono::microseconds(1), .bytes_per_second = 4e9};
};

struct SimOptions {
  std::uint64_t seed = 1;
  std::size_t window_bytes = 1 << 20;  ///< Maximum bytes written and not yet read, per stream.
  std::size_t unit_bytes = 64 * 1024;  ///< Unit in which streams share a port.
  std::size_t gso_burst_bytes = 1;     ///< Value of Transport::gso_burst_bytes().
  bool short_io = false;  ///< Reads and writes transfer a random part of the possible bytes.
  std::uint64_t stall_one_in = 0;  ///< One in N units is late by up to max_stall; 0: none.
  Duration max_stall = std::chrono::milliseconds(50);
};

/// Readiness of a stream of one rank.
struct SimEvent {
  Rank rank = -1;
  ReadyEvent ready;
};

/// Byte streams among ranks in one thread and virtual time, with seeded faults: simulates the
/// behavior of TCP without sockets. Each port sends and receives one unit at a time. A stream keeps
/// its order, whatever units are delayed. Arrived bytes are acknowledged one latency later
/// (Transport::delivered), and can be read whatever then happens to the stream, unless the receiver
/// closes it.
class SimNetwork {
 public:
  /// One rank per host, with one rail.
  SimNetwork(std::vector<SimPort> ports, const SimOptions& options);
  /// Rank r runs on hosts[host_of[r]]. Two ranks have as many rails as the host with fewer.
  SimNetwork(std::vector<SimHost> hosts, std::vector<int> host_of, const SimOptions& options);
  ~SimNetwork();

  /// Returns the transport of one rank.
  Transport& endpoint(Rank rank);

  Time now() const { return now_; }

  /// Advances the time to the next event, at most to `until`, and returns that event; nothing if
  /// there is none until then.
  std::optional<SimEvent> next(Time until);

  /// Ends the process of a rank: its streams end after the bytes in flight.
  void kill(Rank rank);
  /// Unplugs all cables of the rank's host, or one: nothing is sent or received there until mend(),
  /// and no event reports it.
  void cut(Rank rank);
  void cut(Rank rank, int rail);
  /// Plugs a cable in again. As in TCP, each stream retransmits its unacknowledged bytes.
  void mend(Rank rank, int rail);
  /// Changes the speed of a port.
  void set_speed(Rank rank, int rail, double bytes_per_second);
  /// Stops the process of a rank until then.
  void freeze(Rank rank, Time until);
  bool frozen(Rank rank) const { return frozen_until(rank) > now_; }
  Time frozen_until(Rank rank) const {
    return processes_[static_cast<std::size_t>(rank)].frozen_until;
  }
  bool killed(Rank rank) const { return processes_[static_cast<std::size_t>(rank)].killed; }
  /// Breaks all connections between two ranks, or one, in both directions; bytes in flight are
  /// lost.
  void reset(Rank a, Rank b);
  void reset(Rank a, Rank b, int rail);
  /// Flips one bit of the next unit from `from` to `to`.
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
    std::deque<Acknowledgement> acknowledgements;  ///< In flight to the sender.
    std::size_t delivered = 0;
    std::size_t unacknowledged = 0;  ///< Arrived, but the acknowledgement was lost.
    std::vector<Event> lost;         ///< Units (and the end) dropped by a cut link, in order.
    bool writer_waits = false;
    bool ended = false;   ///< No more bytes will be written.
    bool at_end = false;  ///< The end has arrived.
    bool broken = false;
    bool flip_next = false;
  };
  struct Port {
    SimPort spec;
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
  std::vector<std::vector<Port>> ports_;  ///< Per host and rail.
  std::vector<Process> processes_;
  std::size_t max_rails_ = 1;
  std::vector<Stream> streams_;
  std::vector<std::unique_ptr<Endpoint>> endpoints_;
  std::priority_queue<Event, std::vector<Event>, Later> events_;
};

}  // namespace gradwire::net
