#include "gradwire/schedule/cost/port_network.h"

#include <algorithm>

namespace gradwire::schedule {

PortNetwork::Connection& PortNetwork::connection_of(const Transfer& transfer) {
  const auto found = std::ranges::find_if(connections_, [&](const Connection& c) {
    return c.from == transfer.from && c.to == transfer.to;
  });
  if (found != connections_.end()) return *found;
  const auto ranks = static_cast<std::size_t>(std::max(transfer.from, transfer.to)) + 1;
  sending_.resize(std::max(sending_.size(), ranks));
  receiving_.resize(sending_.size());
  return connections_.emplace_back(Connection{.from = transfer.from, .to = transfer.to});
}

void PortNetwork::start(const Transfer& transfer, double now) {
  advance(now);
  std::vector<Flow>& flows = connection_of(transfer).flows;
  const auto place = std::ranges::find_if(
      flows, [&](const Flow& other) { return other.transfer.priority < transfer.priority; });
  flows.insert(place, {.transfer = transfer, .left = transfer.seconds});
  share_ports();
}

void PortNetwork::advance(double now) {
  for (Connection& connection : connections_) {
    for (Flow& flow : connection.flows) {
      flow.left = std::max(0.0, flow.left - (now - now_) * flow.speed);
    }
    busy_ += (now - now_) * connection.used;
  }
  now_ = now;
}

void PortNetwork::share_ports() {
  std::ranges::fill(sending_, 0);
  std::ranges::fill(receiving_, 0);
  for (const Connection& connection : connections_) {
    if (connection.flows.empty()) continue;
    ++sending_[static_cast<std::size_t>(connection.from)];
    ++receiving_[static_cast<std::size_t>(connection.to)];
  }
  for (Connection& connection : connections_) {
    const int senders = receiving_[static_cast<std::size_t>(connection.to)];
    const int receivers = sending_[static_cast<std::size_t>(connection.from)];
    share(connection, shares_ports_ ? 1.0 / std::max({senders, receivers, 1}) : 1.0);
  }
}

void PortNetwork::share(Connection& connection, double port) {
  double free = port;
  for (Flow& flow : connection.flows) {
    const double wanted = std::min(1.0, flow.transfer.port);
    const double share = std::min(wanted, free);
    flow.speed = wanted > 0 ? share / wanted : 1;
    free -= share;
  }
  connection.used = port - free;
}

/// Returns the flow that ends first; end() if there is none.
std::vector<PortNetwork::Flow>::const_iterator PortNetwork::next_of(const Connection& connection) {
  return std::ranges::min_element(connection.flows, {}, [](const Flow& flow) {
    return flow.speed > 0 ? flow.left / flow.speed : kNever;
  });
}

double PortNetwork::end_of(const Connection& connection) const {
  const auto next = next_of(connection);
  if (next == connection.flows.end()) return kNever;
  return now_ + next->left / next->speed;
}

double PortNetwork::next_end() const {
  double next = kNever;
  for (const Connection& connection : connections_) next = std::min(next, end_of(connection));
  return next;
}

std::size_t PortNetwork::end_next() {
  Connection& connection = *std::ranges::min_element(
      connections_, {}, [this](const Connection& each) { return end_of(each); });
  const auto next = next_of(connection);
  const std::size_t id = next->transfer.id;
  advance(end_of(connection));
  connection.flows.erase(next);
  share_ports();
  return id;
}

}  // namespace gradwire::schedule
