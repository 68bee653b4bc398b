#include "gradwire/net/sim/sim_network.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "gradwire/base/check.h"

namespace gradwire::net {
namespace {

/// Delay of the event after a read or write that was shorter than possible (short_io).
constexpr Duration kTryAgain = std::chrono::microseconds(1);

std::vector<SimHost> one_host_each(const std::vector<SimPort>& ports) {
  std::vector<SimHost> hosts;
  for (const SimPort& port : ports) hosts.push_back({.rails = {port}});
  return hosts;
}

std::vector<int> counted(std::size_t count) {
  std::vector<int> numbers(count);
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

template <class Pieces>
std::size_t total_size(Pieces pieces) {
  std::size_t total = 0;
  for (const auto& piece : pieces) total += piece.size();
  return total;
}

tl::unexpected<Error> failed(ErrorKind kind, Rank peer, const char* how) {
  return failure(kind, fmt::format("the connection to rank {} (simulated) was {}", peer, how));
}

}  // namespace

class SimNetwork::Endpoint final : public Transport {
 public:
  Endpoint(SimNetwork& network, Rank rank) : network_(network), rank_(rank) {}

  int rails(Rank peer) const override { return network_.rails(rank_, peer); }
  Result<std::size_t> write(StreamId to, std::span<const ConstBytes> pieces) override {
    return network_.write({rank_, to.peer, to.rail}, pieces);
  }
  Result<std::size_t> read(StreamId from, std::span<const Bytes> pieces) override {
    return network_.read({from.peer, rank_, from.rail}, pieces);
  }
  std::size_t gso_burst_bytes(StreamId) const override { return network_.options_.gso_burst_bytes; }
  std::size_t delivered(StreamId to) override {
    return network_.delivered({rank_, to.peer, to.rail});
  }
  Duration round_trip(StreamId to) const override {
    return 2 * network_.latency({rank_, to.peer, to.rail});
  }
  void close(StreamId to) override { network_.close({rank_, to.peer, to.rail}); }
  std::string describe(StreamId stream) const override {
    if (rails(stream.peer) == 1) return fmt::format("rank {} (simulated)", stream.peer);
    return fmt::format("rank {} (simulated, rail {})", stream.peer, stream.rail);
  }

 private:
  SimNetwork& network_;
  Rank rank_;
};

SimNetwork::SimNetwork(std::vector<SimPort> ports, const SimOptions& options)
    : SimNetwork(one_host_each(ports), counted(ports.size()), options) {}

SimNetwork::SimNetwork(std::vector<SimHost> hosts, std::vector<int> host_of,
                       const SimOptions& options)
    : options_(options), random_(options.seed) {
  for (const SimHost& host : hosts) {
    GRADWIRE_CHECK(!host.rails.empty());
    max_rails_ = std::max(max_rails_, host.rails.size());
    std::vector<Port>& ports = ports_.emplace_back();
    for (const SimPort& port : host.rails) ports.push_back({.spec = port});
  }
  for (std::size_t r = 0; r < host_of.size(); ++r) {
    const SimHost& host = hosts.at(static_cast<std::size_t>(host_of[r]));
    processes_.push_back({.host = host_of[r], .inside = {.spec = host.inside}});
    endpoints_.push_back(std::make_unique<Endpoint>(*this, static_cast<Rank>(r)));
  }
  streams_.resize(processes_.size() * processes_.size() * max_rails_);
}

SimNetwork::~SimNetwork() = default;

Transport& SimNetwork::endpoint(Rank rank) {
  return *endpoints_[static_cast<std::size_t>(rank)];
}

int SimNetwork::rails(Rank a, Rank b) const {
  const int host_a = processes_[static_cast<std::size_t>(a)].host;
  const int host_b = processes_[static_cast<std::size_t>(b)].host;
  if (host_a == host_b) return 1;
  return static_cast<int>(std::min(ports_[static_cast<std::size_t>(host_a)].size(),
                                   ports_[static_cast<std::size_t>(host_b)].size()));
}

SimNetwork::Stream& SimNetwork::stream(Path path) {
  const auto from = static_cast<std::size_t>(path.from);
  const auto to = static_cast<std::size_t>(path.to);
  GRADWIRE_CHECK(path.rail >= 0 && path.rail < rails(path.from, path.to));
  return streams_[(from * processes_.size() + to) * max_rails_ +
                  static_cast<std::size_t>(path.rail)];
}

/// Returns the port of `rank`, an endpoint of the path.
SimNetwork::Port& SimNetwork::port(Rank rank, Path path) {
  if (process(path.from).host == process(path.to).host) return process(rank).inside;
  return ports_[static_cast<std::size_t>(process(rank).host)][static_cast<std::size_t>(path.rail)];
}

Duration SimNetwork::latency(Path path) {
  return std::max(port(path.from, path).spec.latency, port(path.to, path).spec.latency);
}

std::size_t SimNetwork::part_of(std::size_t size) {
  return options_.short_io ? static_cast<std::size_t>(random_.below(size + 1)) : size;
}

Result<std::size_t> SimNetwork::write(Path path, std::span<const ConstBytes> pieces) {
  Stream& out = stream(path);
  if (out.broken || process(path.from).killed) {
    return failed(ErrorKind::disconnected, path.to, "reset");
  }
  if (out.ended) return failed(ErrorKind::aborted, path.to, "closed on this side");
  const std::size_t wanted = total_size(pieces);
  const std::size_t room = options_.window_bytes - std::min(options_.window_bytes, out.in_window);
  const std::size_t taken = send(path, pieces, part_of(std::min(wanted, room)));
  if (taken == wanted) return taken;
  // Shortened although there was room: schedule a retry. Otherwise the reader makes room.
  if (room > taken)
    schedule(now_ + kTryAgain, EventKind::writable, path);
  else
    out.writer_waits = true;
  return taken;
}

/// Sends the first `bytes` bytes of `pieces`, in units. Returns `bytes`.
std::size_t SimNetwork::send(Path path, std::span<const ConstBytes> pieces, std::size_t bytes) {
  std::vector<std::byte> unit;
  std::size_t left = bytes;
  for (const ConstBytes& piece : pieces) {
    ConstBytes rest = piece.first(std::min(piece.size(), left));
    left -= rest.size();
    while (!rest.empty()) {
      const std::size_t size = std::min(rest.size(), options_.unit_bytes - unit.size());
      unit.insert(unit.end(), rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(size));
      rest = rest.subspan(size);
      if (unit.size() == options_.unit_bytes) dispatch(path, std::exchange(unit, {}));
    }
  }
  if (!unit.empty()) dispatch(path, std::move(unit));
  stream(path).in_window += bytes;
  return bytes;
}

void SimNetwork::dispatch(Path path, std::vector<std::byte> bytes) {
  Stream& out = stream(path);
  if (std::exchange(out.flip_next, false)) {
    bytes[random_.below(bytes.size())] ^= static_cast<std::byte>(1u << random_.below(8));
  }
  const Time at = arrival(path, bytes.size());
  schedule(at, EventKind::deliver, path, std::move(bytes));
}

Time SimNetwork::arrival(Path path, std::size_t bytes) {
  const auto on_port = [&](const Port& p) {
    return Duration(
        static_cast<std::int64_t>(static_cast<double>(bytes) / p.spec.bytes_per_second * 1e9));
  };
  Port& sender = port(path.from, path);
  Port& receiver = port(path.to, path);
  sender.egress_free = std::max(sender.egress_free, now_) + on_port(sender);
  // Cut-through: the receiving port is busy with the unit while the sending one is.
  receiver.ingress_free =
      std::max(receiver.ingress_free + on_port(receiver), sender.egress_free + latency(path));
  Time at = receiver.ingress_free;
  if (options_.stall_one_in > 0 && random_.one_in(options_.stall_one_in)) {
    at += Duration(random_.between(0, options_.max_stall.count()));
  }
  Stream& out = stream(path);
  out.last_arrival = std::max(out.last_arrival, at);
  return out.last_arrival;
}

Result<std::size_t> SimNetwork::read(Path path, std::span<const Bytes> pieces) {
  Stream& in = stream(path);
  if (stream(path.reversed()).ended) {
    return failed(ErrorKind::aborted, path.from, "closed on this side");
  }
  if (in.readable.empty() && in.broken) return failed(ErrorKind::disconnected, path.from, "reset");
  if (in.readable.empty() && in.at_end) {
    return failure(ErrorKind::disconnected,
                   fmt::format("rank {} (simulated) closed the connection", path.from));
  }
  const std::size_t wanted = total_size(pieces);
  const std::size_t taken = part_of(std::min(wanted, in.readable.size()));
  std::size_t left = taken;
  for (const Bytes& piece : pieces) {
    const std::size_t size = std::min(piece.size(), left);
    in.readable.pop(piece.first(size));
    left -= size;
  }
  const bool more = !in.readable.empty() || in.at_end || in.broken;
  if (taken < wanted && more) schedule(now_ + kTryAgain, EventKind::readable, path);
  make_room(path, taken);
  return taken;
}

void SimNetwork::make_room(Path path, std::size_t bytes) {
  Stream& in = stream(path);
  in.in_window -= bytes;
  if (bytes > 0 && !severed(path) && std::exchange(in.writer_waits, false)) {
    schedule(now_ + port(path.to, path).spec.latency, EventKind::writable, path);
  }
}

std::size_t SimNetwork::delivered(Path path) {
  Stream& out = stream(path);
  take_acknowledgements(out);
  return out.delivered;
}

void SimNetwork::take_acknowledgements(Stream& out) {
  while (!out.acknowledgements.empty() && out.acknowledgements.front().at <= now_) {
    out.delivered += out.acknowledgements.front().bytes;
    out.acknowledgements.pop_front();
  }
}

void SimNetwork::close(Path path) {
  Stream& out = stream(path);
  if (std::exchange(out.ended, true)) return;
  out.last_arrival = std::max(out.last_arrival, now_ + port(path.from, path).spec.latency);
  schedule(out.last_arrival, EventKind::end, path);
  // Bytes that arrive at a closed end are discarded.
  Stream& in = stream(path.reversed());
  const std::size_t unread = in.readable.size();
  in.readable.clear();
  make_room(path.reversed(), unread);
}

void SimNetwork::schedule(Time at, EventKind kind, Path path, std::vector<std::byte> bytes) {
  events_.push({at, order_++, kind, path, std::move(bytes)});
}

std::optional<SimEvent> SimNetwork::next(Time until) {
  while (!events_.empty() && events_.top().at <= until) {
    Event event = std::move(const_cast<Event&>(events_.top()));
    events_.pop();
    now_ = std::max(now_, event.at);
    if (std::optional<SimEvent> happened = apply(std::move(event))) return happened;
  }
  now_ = std::max(now_, until);
  return std::nullopt;
}

std::optional<SimEvent> SimNetwork::apply(Event event) {
  const Path path = event.path;
  const Rank listener = event.kind == EventKind::writable ? path.from : path.to;
  if (killed(listener)) return std::nullopt;
  if (frozen(listener)) {
    event.at = frozen_until(listener);
    events_.push(std::move(event));  // Its order number keeps the stream's order.
    return std::nullopt;
  }
  switch (event.kind) {
    case EventKind::deliver:
      if (!deliver(std::move(event))) return std::nullopt;
      break;
    case EventKind::end:
      if (severed(path)) {
        stream(path).lost.push_back(std::move(event));
        return std::nullopt;
      }
      stream(path).at_end = true;
      break;
    case EventKind::broken:
      stream(path).broken = true;
      break;
    case EventKind::writable:
      return SimEvent{listener, {.peer = path.to, .writable = true, .rail = path.rail}};
    case EventKind::readable:
      break;
  }
  return SimEvent{listener, {.peer = path.from, .readable = true, .rail = path.rail}};
}

/// Returns true if the bytes can be read.
bool SimNetwork::deliver(Event event) {
  Stream& s = stream(event.path);
  if (s.broken) return false;
  if (severed(event.path)) {
    s.lost.push_back(std::move(event));
    return false;
  }
  s.acknowledgements.push_back({now_ + latency(event.path), event.bytes.size()});
  if (stream(event.path.reversed()).ended) {
    make_room(event.path, event.bytes.size());
    return false;
  }
  s.readable.push(event.bytes);
  return true;
}

void SimNetwork::kill(Rank rank) {
  for (Rank peer = 0; peer < static_cast<Rank>(processes_.size()); ++peer) {
    if (peer == rank) continue;
    for (int rail = 0; rail < rails(rank, peer); ++rail) close({rank, peer, rail});
  }
  process(rank).killed = true;
}

void SimNetwork::cut(Rank rank) {
  const auto host = static_cast<std::size_t>(process(rank).host);
  for (int rail = 0; rail < static_cast<int>(ports_[host].size()); ++rail) cut(rank, rail);
}

void SimNetwork::cut(Rank rank, int rail) {
  const auto host = static_cast<std::size_t>(process(rank).host);
  ports_[host][static_cast<std::size_t>(rail)].cut = true;
  for_each_path(rank, rail, [&](Path path) {
    Stream& s = stream(path);
    take_acknowledgements(s);
    for (const Acknowledgement& lost : s.acknowledgements) s.unacknowledged += lost.bytes;
    s.acknowledgements.clear();
  });
}

void SimNetwork::mend(Rank rank, int rail) {
  const auto host = static_cast<std::size_t>(process(rank).host);
  ports_[host][static_cast<std::size_t>(rail)].cut = false;
  for_each_path(rank, rail, [&](Path path) {
    if (!severed(path)) retransmit(path);
  });
}

/// Calls `visit` with both directions of each path over a rail from this host's ranks to others.
template <class Visit>
void SimNetwork::for_each_path(Rank rank, int rail, Visit visit) {
  const auto count = static_cast<Rank>(processes_.size());
  for (Rank a = 0; a < count; ++a) {
    for (Rank b = 0; b < count; ++b) {
      const bool here = process(a).host == process(rank).host;
      if (!here || process(b).host == process(a).host || rail >= rails(a, b)) continue;
      visit(Path{a, b, rail});
      visit(Path{b, a, rail});
    }
  }
}

/// Retransmits lost units at once with their old order numbers, so ahead of units written later.
void SimNetwork::retransmit(Path path) {
  Stream& s = stream(path);
  if (s.broken) return;
  if (s.unacknowledged > 0) {
    s.acknowledgements.push_back({now_ + latency(path), std::exchange(s.unacknowledged, 0)});
  }
  for (Event& event : std::exchange(s.lost, {})) {
    event.at = now_;
    events_.push(std::move(event));
  }
  if (s.in_window < options_.window_bytes && std::exchange(s.writer_waits, false)) {
    schedule(now_ + latency(path), EventKind::writable, path);
  }
}

void SimNetwork::set_speed(Rank rank, int rail, double bytes_per_second) {
  const auto host = static_cast<std::size_t>(process(rank).host);
  ports_[host][static_cast<std::size_t>(rail)].spec.bytes_per_second = bytes_per_second;
}

void SimNetwork::freeze(Rank rank, Time until) {
  process(rank).frozen_until = std::max(process(rank).frozen_until, until);
}

void SimNetwork::reset(Rank a, Rank b) {
  for (int rail = 0; rail < rails(a, b); ++rail) reset(a, b, rail);
}

void SimNetwork::reset(Rank a, Rank b, int rail) {
  for (const Path path : {Path{a, b, rail}, Path{b, a, rail}}) {
    take_acknowledgements(stream(path));
    stream(path).acknowledgements.clear();
    schedule(now_, EventKind::broken, path);
  }
}

void SimNetwork::flip_bit(Rank from, Rank to, int rail) {
  stream({from, to, rail}).flip_next = true;
}

}  // namespace gradwire::net
