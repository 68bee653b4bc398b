#include "gradwire/pipeline/simulated_network.h"

#include <algorithm>

namespace gradwire::pipeline {

SimulatedNetwork::Connection& SimulatedNetwork::connection_of(const Send& send) {
  const auto found = std::ranges::find_if(
      connections_, [&](const Connection& c) { return c.from == send.from && c.to == send.to; });
  if (found != connections_.end()) return *found;
  const auto ranks = static_cast<std::size_t>(std::max(send.from, send.to)) + 1;
  sending_.resize(std::max(sending_.size(), ranks));
  receiving_.resize(sending_.size());
  return connections_.emplace_back(Connection{.from = send.from, .to = send.to});
}

void SimulatedNetwork::send(const Send& send, double now) {
  advance(now);
  std::vector<Send>& messages = connection_of(send).messages;
  const auto place = std::ranges::find_if(
      messages, [&](const Send& other) { return other.priority < send.priority; });
  messages.insert(place, send);
  share_ports();
}

void SimulatedNetwork::advance(double now) {
  for (Connection& connection : connections_) {
    if (connection.messages.empty()) continue;
    double& left = connection.messages.front().seconds;
    left = std::max(0.0, left - (now - now_) * connection.rate);
  }
  now_ = now;
}

void SimulatedNetwork::share_ports() {
  std::ranges::fill(sending_, 0);
  std::ranges::fill(receiving_, 0);
  for (const Connection& connection : connections_) {
    if (connection.messages.empty()) continue;
    ++sending_[static_cast<std::size_t>(connection.from)];
    ++receiving_[static_cast<std::size_t>(connection.to)];
  }
  for (Connection& connection : connections_) {
    const int senders = receiving_[static_cast<std::size_t>(connection.to)];
    const int receivers = sending_[static_cast<std::size_t>(connection.from)];
    connection.rate = shares_ports_ ? 1.0 / std::max({senders, receivers, 1}) : 1.0;
  }
}

double SimulatedNetwork::next_end() const {
  double next = kNever;
  for (const Connection& connection : connections_) {
    if (connection.messages.empty()) continue;
    next = std::min(next, now_ + connection.messages.front().seconds / connection.rate);
  }
  return next;
}

std::size_t SimulatedNetwork::end_next() {
  const auto end_of = [&](const Connection& connection) {
    return connection.messages.empty()
               ? kNever
               : now_ + connection.messages.front().seconds / connection.rate;
  };
  Connection& next = *std::ranges::min_element(connections_, {}, end_of);
  advance(end_of(next));
  const std::size_t id = next.messages.front().id;
  next.messages.erase(next.messages.begin());
  share_ports();
  return id;
}

}  // namespace gradwire::pipeline
