#include "gradwire/engine/simulated_job.h"

#include <algorithm>
#include <utility>

namespace gradwire::engine {
namespace {

std::vector<net::SimHost> hosts_of(const topology::Topology& topology) {
  const auto port_of = [](const topology::Link& link) {
    return net::SimPort{link.latency, link.bytes_per_second};
  };
  std::vector<net::SimHost> hosts;
  for (int number = 0; number < topology.hosts(); ++number) {
    net::SimHost& host = hosts.emplace_back();
    for (const topology::Link& rail : topology.host(number).rails)
      host.rails.push_back(port_of(rail));
    host.inside = port_of(topology.host(number).inside);
  }
  return hosts;
}

std::vector<int> host_of_ranks(const topology::Topology& topology) {
  std::vector<int> host_of;
  for (Rank rank = 0; rank < topology.ranks(); ++rank) host_of.push_back(topology.host_of(rank));
  return host_of;
}

}  // namespace

SimulatedJob::SimulatedJob(std::vector<net::SimPort> ports, const net::SimOptions& network,
                           const ExecutorOptions& options, const Wrap& wrap)
    : network_(ports, network) {
  make_executors(static_cast<int>(ports.size()), options, wrap);
}

SimulatedJob::SimulatedJob(std::vector<net::SimHost> hosts, std::vector<int> host_of,
                           const net::SimOptions& network, const ExecutorOptions& options,
                           const Wrap& wrap)
    : network_(std::move(hosts), host_of, network) {
  make_executors(static_cast<int>(host_of.size()), options, wrap);
}

SimulatedJob::SimulatedJob(const topology::Topology& topology, const net::SimOptions& network,
                           const ExecutorOptions& options)
    : SimulatedJob(hosts_of(topology), host_of_ranks(topology), network, options) {}

void SimulatedJob::make_executors(int ranks, const ExecutorOptions& options, const Wrap& wrap) {
  for (Rank r = 0; r < ranks; ++r) {
    net::Transport* transport = &network_.endpoint(r);
    if (wrap) transport = wrapped_.emplace_back(wrap(r, *transport)).get();
    executors_.push_back(std::make_unique<Executor>(r, ranks, options, *transport, now()));
  }
}

Time SimulatedJob::next_timer() const {
  Time next = Time::max();
  for (Rank r = 0; r < static_cast<Rank>(executors_.size()); ++r) {
    if (network_.killed(r)) continue;
    const Time timer = executors_[static_cast<std::size_t>(r)]->next_timer();
    next = std::min(next, std::max(timer, network_.frozen_until(r)));
  }
  return next;
}

void SimulatedJob::fire_timers() {
  for (Rank r = 0; r < ranks(); ++r) {
    if (network_.killed(r) || network_.frozen(r)) continue;
    if (executor(r).next_timer() <= now()) executor(r).on_timer(now());
  }
}

bool SimulatedJob::run(Time until, const std::function<bool()>& finished) {
  while (!finished()) {
    if (now() >= until) return false;
    const std::optional<net::SimEvent> event = network_.next(std::min(next_timer(), until));
    if (!event) {
      fire_timers();
    } else if (event->ready.readable) {
      executor(event->rank).on_readable(event->ready.stream(), now());
    } else {
      executor(event->rank).on_writable(event->ready.stream(), now());
    }
  }
  return true;
}

}  // namespace gradwire::engine
