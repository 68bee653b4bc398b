#include "gradwire/net/sim/sim_network.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace gradwire {

class SimNetwork::Endpoint final : public Transport {
 public:
  Endpoint(SimNetwork& network, Rank rank) : network_(network), rank_(rank) {}

  Result<std::size_t> write(Rank peer, std::span<const ConstBytes> pieces) override {
    return network_.write(rank_, peer, pieces);
  }
  Result<std::size_t> read(Rank peer, std::span<const Bytes> pieces) override {
    return network_.read(rank_, peer, pieces);
  }
  void close(Rank peer) override { network_.close(rank_, peer); }
  std::string describe(Rank peer) const override {
    return fmt::format("rank {} (simulated)", peer);
  }

 private:
  SimNetwork& network_;
  Rank rank_;
};

SimNetwork::SimNetwork(std::vector<SimPort> ports, const SimOptions& options)
    : options_(options), random_(options.seed), hosts_(ports.size()) {
  streams_.resize(ports.size() * ports.size());
  for (std::size_t i = 0; i < ports.size(); ++i) {
    hosts_[i].port = ports[i];
    endpoints_.push_back(std::make_unique<Endpoint>(*this, static_cast<Rank>(i)));
  }
}

SimNetwork::~SimNetwork() = default;

Transport& SimNetwork::endpoint(Rank rank) {
  return *endpoints_[static_cast<std::size_t>(rank)];
}

std::size_t SimNetwork::part_of(std::size_t size) {
  return options_.short_io ? static_cast<std::size_t>(random_.below(size + 1)) : size;
}

Result<std::size_t> SimNetwork::write(Rank from, Rank to, std::span<const ConstBytes> pieces) {
  Stream& out = stream(from, to);
  if (out.broken || host(from).killed) {
    return failure(ErrorKind::disconnected,
                   fmt::format("the connection to rank {} (simulated) was reset", to));
  }
  std::size_t wanted = 0;
  for (const ConstBytes& piece : pieces) wanted += piece.size();
  const std::size_t room = options_.window_bytes - std::min(options_.window_bytes, out.in_window);
  const std::size_t taken = part_of(std::min(wanted, room));
  std::vector<std::byte> unit;
  std::size_t left = taken;
  for (const ConstBytes& piece : pieces) {
    ConstBytes rest = piece.first(std::min(piece.size(), left));
    left -= rest.size();
    while (!rest.empty()) {
      const std::size_t size = std::min(rest.size(), options_.unit_bytes - unit.size());
      unit.insert(unit.end(), rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(size));
      rest = rest.subspan(size);
      if (unit.size() == options_.unit_bytes) dispatch(from, to, std::exchange(unit, {}));
    }
  }
  if (!unit.empty()) dispatch(from, to, std::move(unit));
  out.in_window += taken;
  if (taken < wanted) {
    // Refused although there was room: another try is due. Otherwise reading makes room.
    if (room > taken)
      schedule(now_ + std::chrono::microseconds(1), EventKind::writable, from, to);
    else
      out.writer_waits = true;
  }
  return taken;
}

void SimNetwork::dispatch(Rank from, Rank to, std::vector<std::byte> bytes) {
  Stream& out = stream(from, to);
  if (std::exchange(out.flip_next, false)) {
    bytes[random_.below(bytes.size())] ^= static_cast<std::byte>(1u << random_.below(8));
  }
  const Time at = arrival(from, to, bytes.size());
  schedule(at, EventKind::deliver, from, to, std::move(bytes));
}

Time SimNetwork::arrival(Rank from, Rank to, std::size_t bytes) {
  const auto on_port = [&](const Host& h) {
    return Duration(
        static_cast<std::int64_t>(static_cast<double>(bytes) / h.port.bytes_per_second * 1e9));
  };
  Host& sender = host(from);
  Host& receiver = host(to);
  sender.egress_free = std::max(sender.egress_free, now_) + on_port(sender);
  const Duration latency = std::max(sender.port.latency, receiver.port.latency);
  // Cut-through: the receiving port is busy with the unit while the sending one is.
  receiver.ingress_free =
      std::max(receiver.ingress_free + on_port(receiver), sender.egress_free + latency);
  Time at = receiver.ingress_free;
  if (options_.stall_one_in > 0 && random_.one_in(options_.stall_one_in)) {
    at += Duration(random_.between(0, options_.max_stall.count()));
  }
  Stream& out = stream(from, to);
  out.last_arrival = std::max(out.last_arrival, at);
  return out.last_arrival;
}

Result<std::size_t> SimNetwork::read(Rank to, Rank from, std::span<const Bytes> pieces) {
  Stream& in = stream(from, to);
  if (in.broken) {
    return failure(ErrorKind::disconnected,
                   fmt::format("the connection to rank {} (simulated) was reset", from));
  }
  if (in.readable.empty() && in.at_end) {
    return failure(ErrorKind::disconnected,
                   fmt::format("rank {} (simulated) closed the connection", from));
  }
  std::size_t wanted = 0;
  for (const Bytes& piece : pieces) wanted += piece.size();
  const std::size_t available = std::min(wanted, in.readable.size());
  const std::size_t taken = part_of(available);
  std::size_t left = taken;
  for (const Bytes& piece : pieces) {
    const std::size_t size = std::min(piece.size(), left);
    std::copy_n(in.readable.begin(), size, piece.begin());
    in.readable.erase(in.readable.begin(), in.readable.begin() + static_cast<std::ptrdiff_t>(size));
    left -= size;
  }
  in.in_window -= taken;
  const bool more = !in.readable.empty() || in.at_end;
  if (taken < wanted && more) {
    schedule(now_ + std::chrono::microseconds(1), EventKind::readable, from, to);
  }
  if (taken > 0 && std::exchange(in.writer_waits, false)) {
    schedule(now_ + host(to).port.latency, EventKind::writable, from, to);
  }
  return taken;
}

void SimNetwork::close(Rank from, Rank to) {
  Stream& out = stream(from, to);
  if (std::exchange(out.ended, true)) return;
  out.last_arrival = std::max(out.last_arrival, now_ + host(from).port.latency);
  schedule(out.last_arrival, EventKind::end, from, to);
}

void SimNetwork::schedule(Time at, EventKind kind, Rank from, Rank to,
                          std::vector<std::byte> bytes) {
  events_.push({at, order_++, kind, from, to, std::move(bytes)});
}

/// The rank that hears of an event.
Rank SimNetwork::listener_of(const Event& event) const {
  return event.kind == EventKind::writable ? event.from : event.to;
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
  const Rank listener = listener_of(event);
  if (host(listener).killed) return std::nullopt;
  if (frozen(listener)) {
    event.at = host(listener).frozen_until;
    events_.push(std::move(event));  // With its old order: streams stay in order.
    return std::nullopt;
  }
  Stream& s = stream(event.from, event.to);
  const bool lost = host(event.from).cut || host(event.to).cut;
  switch (event.kind) {
    case EventKind::deliver:
      if (lost || s.broken) return std::nullopt;
      s.readable.insert(s.readable.end(), event.bytes.begin(), event.bytes.end());
      break;
    case EventKind::end:
      if (lost) return std::nullopt;
      s.at_end = true;
      break;
    case EventKind::broken:
      s.broken = true;
      break;
    case EventKind::writable:
      return SimEvent{listener, {event.to, false, true}};
    case EventKind::readable:
      break;
  }
  return SimEvent{listener, {event.from, true, false}};
}

void SimNetwork::kill(Rank rank) {
  for (Rank peer = 0; peer < static_cast<Rank>(hosts_.size()); ++peer) {
    if (peer != rank) close(rank, peer);
  }
  host(rank).killed = true;
}

void SimNetwork::cut(Rank rank) {
  host(rank).cut = true;
}

void SimNetwork::freeze(Rank rank, Time until) {
  host(rank).frozen_until = std::max(host(rank).frozen_until, until);
}

void SimNetwork::reset(Rank a, Rank b) {
  schedule(now_, EventKind::broken, a, b);
  schedule(now_, EventKind::broken, b, a);
}

void SimNetwork::flip_bit(Rank from, Rank to) {
  stream(from, to).flip_next = true;
}

}  // namespace gradwire
