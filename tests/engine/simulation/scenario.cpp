#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "tests/engine/simulation/simulated_run.h"

namespace gradwire::test {
namespace {

constexpr int kMaxRanksDrawn = 7;

Duration milliseconds(std::int64_t n) {
  return std::chrono::milliseconds(n);
}

std::size_t draw_count(Random& random) {
  constexpr std::array<std::size_t, 6> kOdd{0, 1, 2, 3, 17, 64};
  return random.one_in(3) ? kOdd[random.below(kOdd.size())] : random.below(600);
}

Case draw_case(Random& random, int ranks) {
  const std::span<const schedule::Algorithm> all = schedule::algorithm_catalogue();
  const schedule::Algorithm* algorithm = &all[random.below(all.size())];
  while (algorithm->collective == schedule::Collective::point_to_point) {
    algorithm = &all[random.below(all.size())];
  }
  Case c{.collective = algorithm->collective,
         .algorithm = std::string(algorithm->name),
         .ranks = ranks,
         .count = algorithm->collective == schedule::Collective::barrier ? 0 : draw_count(random),
         .type = all_data_types()[random.below(all_data_types().size())],
         .op = all_reduce_ops()[random.below(all_reduce_ops().size())],
         .root = static_cast<Rank>(random.below(static_cast<std::uint64_t>(ranks))),
         .in_place = random.one_in(2)};
  if (c.collective == schedule::Collective::barrier) c.type = DataType::uint8;
  return c;
}

Fault draw_fault(Random& random, int ranks) {
  if (ranks == 1 || random.one_in(3)) return Fault::none;
  constexpr std::array<Fault, 9> kFaults{Fault::kill,     Fault::cut,     Fault::freeze,
                                         Fault::suspend,  Fault::reset,   Fault::flip,
                                         Fault::mismatch, Fault::absence, Fault::departure};
  if (random.one_in(4)) return Fault::rails;
  return kFaults[random.below(kFaults.size())];
}

engine::ExecutorOptions draw_options(Random& random) {
  engine::ExecutorOptions options;
  options.limits.segment_bytes = std::size_t{8} << random.below(7);
  options.limits.eager_bytes = random.below(400);
  options.limits.eager_credit = options.limits.eager_bytes + random.below(600);
  options.receive_buffer_bytes = 64 + random.below(1000);
  return options;
}

net::SimOptions draw_network(Random& random) {
  return {.seed = random.next(),
          .window_bytes = 256 + random.below(8000),
          .unit_bytes = 16 + random.below(2000),
          .gso_burst_bytes = random.one_in(2) ? 1 : 1 + random.below(600),
          .short_io = random.one_in(2),
          .stall_one_in = random.one_in(2) ? 8 + random.below(40) : 0,
          .max_stall = milliseconds(random.between(1, 300))};
}

/// Most scenarios have one rank per host and one rail. Some share hosts, some have several rails of
/// unequal speed and in different numbers.
void draw_hosts(Random& random, Scenario& s) {
  const bool shared = random.one_in(4);
  const bool rails = s.fault == Fault::rails || random.one_in(3);
  const std::uint64_t min_rails = rails ? 2 : 1;
  for (Rank r = 0; r < s.ranks; ++r) {
    const bool joins = shared && r > 0 && random.one_in(2);
    s.host_of.push_back(joins ? s.host_of.back() : static_cast<int>(s.hosts.size()));
    if (joins) continue;
    net::SimHost& host = s.hosts.emplace_back();
    for (std::uint64_t n = rails ? min_rails + random.below(2) : 1; n > 0; --n) {
      host.rails.push_back({Duration(random.between(1'000, 200'000)),
                            1e6 * static_cast<double>(random.between(1, 1000))});
    }
  }
}

/// Every host has the first two rails; one of them stays intact.
void draw_rail_faults(Random& random, Scenario& s) {
  const auto survivor = static_cast<int>(random.below(2));
  for (std::uint64_t n = 1 + random.below(3); n > 0; --n) {
    RailFault fault;
    fault.kind = static_cast<RailFault::Kind>(random.below(4));
    fault.at = Time(Duration(random.between(0, 1'500'000)));
    fault.lasts = milliseconds(random.between(1, 3000));
    fault.victim = static_cast<Rank>(random.below(static_cast<std::uint64_t>(s.ranks)));
    fault.other = static_cast<Rank>(random.below(static_cast<std::uint64_t>(s.ranks)));
    fault.rail = random.one_in(3) ? 2 : 1 - survivor;
    fault.bytes_per_second = 1e4 * static_cast<double>(random.between(1, 100));
    const std::size_t rails =
        s.hosts[static_cast<std::size_t>(s.host_of[static_cast<std::size_t>(fault.victim)])]
            .rails.size();
    if (fault.rail < static_cast<int>(rails)) s.rail_faults.push_back(fault);
  }
}

/// The topology that schedules use.
topology::Topology topology_of(const Scenario& s) {
  std::vector<topology::Host> hosts;
  for (const net::SimHost& host : s.hosts) {
    topology::Host& seen = hosts.emplace_back();
    seen.rails.clear();
    for (const net::SimPort& rail : host.rails) {
      seen.rails.push_back({rail.latency, rail.bytes_per_second});
    }
  }
  return {std::move(hosts), s.host_of};
}

/// Every rank calls the operations in order, mostly soon, sometimes late.
std::vector<Time> draw_posts(Random& random, std::size_t operations) {
  std::vector<Time> posts;
  Time at{};
  for (std::size_t i = 0; i < operations; ++i) {
    if (!random.one_in(3)) at += Duration(random.between(0, 300'000));
    if (random.one_in(20)) at += milliseconds(random.between(0, 4000));
    posts.push_back(at);
  }
  return posts;
}

/// An order of the first `operations` operations: those of a lane in their order, lanes interleaved
/// at random.
std::vector<std::size_t> draw_order(Random& random, const std::vector<Case>& cases,
                                    std::size_t operations) {
  std::vector<std::size_t> order;
  std::vector<bool> taken(operations);
  while (order.size() < operations) {
    const int lane = cases[random.below(operations)].lane;
    for (std::size_t i = 0; i < operations; ++i) {
      if (taken[i] || cases[i].lane != lane) continue;
      taken[i] = true;
      order.push_back(i);
      break;
    }
  }
  return order;
}

/// Some scenarios have operations in several lanes, which ranks call in different orders. The last
/// operation, which faults affect, is the last of every rank.
void draw_lanes(Random random, Scenario& s) {
  if (!random.one_in(3)) return;
  for (Case& c : s.cases) c.lane = static_cast<int>(random.below(3));
  for (std::vector<Time>& posts : s.posted) {
    const std::vector<Time> times = posts;
    const auto order = draw_order(random, s.cases, s.cases.size() - 1);
    for (std::size_t k = 0; k < order.size(); ++k) posts[order[k]] = times[k];
  }
}

}  // namespace

std::string_view name_of(Fault fault) {
  constexpr std::array<std::string_view, 11> kNames{"none",    "kill",      "cut",  "freeze",
                                                    "suspend", "reset",     "flip", "mismatch",
                                                    "absence", "departure", "rails"};
  return kNames[static_cast<std::size_t>(fault)];
}

Scenario draw_scenario(std::uint64_t seed) {
  Random random(seed);
  Scenario s;
  s.seed = seed;
  s.ranks = static_cast<int>(random.between(1, kMaxRanksDrawn));
  for (std::uint64_t n = 1 + random.below(4); n > 0; --n)
    s.cases.push_back(draw_case(random, s.ranks));
  for (Rank r = 0; r < s.ranks; ++r) {
    s.posted.push_back(draw_posts(random, s.cases.size()));
  }
  s.fault = draw_fault(random, s.ranks);
  draw_hosts(random, s);
  if (s.fault == Fault::rails) draw_rail_faults(random, s);
  for (Case& c : s.cases) c.topology = topology_of(s);
  s.leaves = (s.fault == Fault::none || s.fault == Fault::rails) && random.one_in(3);
  s.fault_at = Time(Duration(random.between(0, 1'500'000)));
  s.victim = static_cast<Rank>(random.below(static_cast<std::uint64_t>(s.ranks)));
  s.other = static_cast<Rank>(
      (s.victim + 1 +
       static_cast<Rank>(random.below(static_cast<std::uint64_t>(std::max(1, s.ranks - 1))))) %
      s.ranks);
  s.freeze_for = milliseconds(random.between(1, 9000));
  s.options = draw_options(random);
  s.network = draw_network(random);
  // Changed bits are not detected there: they cannot happen in memory.
  const bool one_rail =
      std::ranges::all_of(s.hosts, [](const auto& h) { return h.rails.size() == 1; });
  s.in_place = one_rail && random.one_in(4) && s.fault != Fault::flip;
  draw_lanes(random, s);
  return s;
}

std::string Scenario::describe() const {
  std::string text = fmt::format(
      "seed {}: {} ranks, fault {} at {} us (rank {}, rank {}, {} ms), segment {}, eager {}/{}, "
      "window {}, unit {}, GSO burst {}{}, stall 1 in {} up to {} ms{}\n",
      seed, ranks, name_of(fault), fault_at.time_since_epoch().count() / 1000, victim, other,
      freeze_for.count() / 1'000'000, options.limits.segment_bytes, options.limits.eager_bytes,
      options.limits.eager_credit, network.window_bytes, network.unit_bytes,
      network.gso_burst_bytes, network.short_io ? ", short reads and writes" : "",
      network.stall_one_in, network.max_stall.count() / 1'000'000, in_place ? ", in place" : "");
  for (std::size_t h = 0; h < hosts.size(); ++h) {
    text += fmt::format("  host {}: {} ranks, rails", h, std::ranges::count(host_of, h));
    for (const net::SimPort& rail : hosts[h].rails) {
      text += fmt::format(" {} MB/s", rail.bytes_per_second / 1e6);
    }
    text += "\n";
  }
  for (const RailFault& f : rail_faults) {
    constexpr std::array<std::string_view, 4> kKinds{"cut", "reset", "slow", "outage"};
    text += fmt::format("  rail {} of rank {} (rank {}): {} at {} us, for {} ms if an outage\n",
                        f.rail, f.victim, f.other, kKinds[static_cast<std::size_t>(f.kind)],
                        f.at.time_since_epoch().count() / 1000, f.lasts.count() / 1'000'000);
  }
  if (leaves) text += "  each rank leaves when it is done\n";
  for (const Case& c : cases) text += "  " + c.describe() + "\n";
  return text;
}

}  // namespace gradwire::test
