#include "gradwire/cli/probe/measure.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <fstream>
#include <memory>
#include <utility>

#include "gradwire/base/check.h"
#include "gradwire/base/cpu.h"
#include "gradwire/base/log.h"
#include "gradwire/base/random.h"
#include "gradwire/bootstrap/mesh/local_rails.h"
#include "gradwire/cli/probe/roster.h"
#include "gradwire/cli/probe/stream_probe.h"
#include "gradwire/net/datagram.h"
#include "gradwire/topology/topology_file.h"

namespace gradwire::cli {

std::string binding_of(const bootstrap::RailEndpoint& own, const net::SocketAddress& other) {
  const bool binds =
      bootstrap::leaves_elsewhere(own, other) && bootstrap::answers_for_itself_alone(own);
  return binds ? own.interface : "";
}

bool is_detour(const bootstrap::RailEndpoint& own, const net::SocketAddress& other) {
  return bootstrap::leaves_elsewhere(own, other) && !bootstrap::answers_for_itself_alone(own);
}

namespace {

/// Measurements of a rate, and further ones if the rate is below kDoubtful of the fastest.
constexpr int kTimes = 2;
constexpr int kMoreTimes = 3;
constexpr double kDoubtful = 0.7;

/// One rank's part in a measurement of the whole cluster.
class Probe {
 public:
  Probe(Wire& wire, const Prober& me, Roster roster, const ProbeOptions& options)
      : wire_(wire), me_(me), roster_(std::move(roster)), options_(options) {
    cluster_.hosts = roster_.hosts();
  }

  /// Measures; returns this rank's results: its own host and the paths from there.
  Result<topology::Cluster> run();

 private:
  bool leads() const { return roster_.leader(host()) == me_.rank; }
  int host() const { return roster_.host_of(me_.rank); }
  int rails_to(Rank peer) const { return wire_.transport().rails(peer); }
  /// Returns true if any rank found a black hole. Also a barrier.
  Result<bool> any_black_hole();
  /// Calls `measure` with the number of each other host, in rounds that do not disturb each other.
  template <typename Measure>
  Status with_each_host(const Measure& measure);
  Status examine(int other);
  Status examine_rail(int other, net::StreamId stream, bool first);
  Result<RoundTrips> round_trips(net::StreamId stream, bool first);
  Result<double> rate(net::StreamId stream, bool sends);
  Result<double> fastest_of_all();
  Status repeat_slow(int other, double fastest);
  Status repeat_slow_rate(net::StreamId stream, double* found, double fastest);
  Result<double> rate_once(net::StreamId stream, bool sends);
  Result<bool> exchange_datagrams(topology::MeasuredPath& path, net::StreamId stream, bool first);
  Status send_datagrams(topology::MeasuredPath& path);
  Status look_inside();
  Status run_together();

  Wire& wire_;
  const Prober& me_;
  Roster roster_;
  const ProbeOptions& options_;
  topology::Cluster cluster_;
  bool found_black_hole_ = false;
};

/// Tells the receiver of a stream whether the sender wants another measurement.
Result<bool> another(Wire& wire, net::StreamId stream, bool sends, bool wanted) {
  std::array<std::byte, 1> note = {std::byte{wanted}};
  const Status told = sends ? wire.send(stream, note) : wire.receive(stream, note);
  if (!told) return tl::unexpected<Error>(told.error());
  return note.front() != std::byte{0};
}

Result<bool> Probe::any_black_hole() {
  GRADWIRE_ASSIGN_OR_RETURN(const auto all,
                            share(wire_, me_.rank, me_.ranks, found_black_hole_ ? "found" : ""));
  return std::ranges::any_of(all, [](const std::string& said) { return !said.empty(); });
}

template <typename Measure>
Status Probe::with_each_host(const Measure& measure) {
  for (const auto& round : rounds_of_pairs(roster_.kernels())) {
    for (const auto& [a, b] : round) {
      if (!leads() || (host() != a && host() != b)) continue;
      GRADWIRE_RETURN_IF_ERROR(measure(host() == a ? b : a));
    }
    GRADWIRE_RETURN_IF_ERROR(any_black_hole());
  }
  return {};
}

Result<topology::Cluster> Probe::run() {
  GRADWIRE_RETURN_IF_ERROR(with_each_host([this](int other) { return examine(other); }));
  GRADWIRE_RETURN_IF_ERROR(look_inside());
  GRADWIRE_ASSIGN_OR_RETURN(const auto holes, any_black_hole());
  if (holes) return std::move(cluster_);
  GRADWIRE_ASSIGN_OR_RETURN(const auto fastest, fastest_of_all());
  GRADWIRE_RETURN_IF_ERROR(with_each_host([&](int other) { return repeat_slow(other, fastest); }));
  GRADWIRE_RETURN_IF_ERROR(run_together());
  return std::move(cluster_);
}

Status Probe::examine(int other) {
  const Rank peer = roster_.leader(other);
  for (int rail = 0; rail < rails_to(peer); ++rail) {
    const net::StreamId stream{.peer = peer, .rail = rail};
    GRADWIRE_RETURN_IF_ERROR(examine_rail(other, stream, me_.rank < peer));
  }
  return {};
}

/// Called at both ends, at one of them with `first`.
Status Probe::examine_rail(int other, net::StreamId stream, bool first) {
  topology::MeasuredPath path{.from = host(), .to = other, .rail = stream.rail};
  GRADWIRE_ASSIGN_OR_RETURN(const auto trips, round_trips(stream, first));
  path.latency = trips.median;
  path.shortest_latency = trips.shortest;
  if (other == 0 && stream.rail == 0) {
    cluster_.hosts[static_cast<std::size_t>(host())].clock_offset = trips.clock_offset;
    cluster_.hosts[static_cast<std::size_t>(host())].clock_uncertainty = trips.shortest;
  }
  GRADWIRE_ASSIGN_OR_RETURN(const auto theirs, exchange_datagrams(path, stream, first));
  if (topology::is_black_hole(cluster_, path) || theirs) {
    // TCP would retransmit lost packets until it gives up.
    found_black_hole_ = true;
  } else {
    for (const bool sends : {first, !first}) {
      GRADWIRE_ASSIGN_OR_RETURN(const auto found, rate(stream, sends));
      if (sends) path.bytes_per_second = found;
    }
  }
  cluster_.paths.push_back(path);
  return {};
}

/// One end after the other. Returns true if the other end found a black hole.
Result<bool> Probe::exchange_datagrams(topology::MeasuredPath& path, net::StreamId stream,
                                       bool first) {
  std::array<std::byte, 1> note = {};
  for (const bool sends : {first, !first}) {
    if (sends) {
      GRADWIRE_RETURN_IF_ERROR(send_datagrams(path));
      std::array<std::byte, 1> mine = {std::byte{topology::is_black_hole(cluster_, path)}};
      GRADWIRE_RETURN_IF_ERROR(wire_.send(stream, mine));
    } else
      GRADWIRE_RETURN_IF_ERROR(wire_.receive(stream, note));
  }
  return note.front() != std::byte{0};
}

/// Both ends ping in turn, as the end that pings computes the clock offset.
Result<RoundTrips> Probe::round_trips(net::StreamId stream, bool first) {
  Result<RoundTrips> found;
  for (const bool pings : {first, !first}) {
    if (pings) {
      found = measure_round_trips(wire_, stream, options_.round_trips);
      if (!found) return found;
    } else
      GRADWIRE_RETURN_IF_ERROR(answer_round_trips(wire_, stream, options_.round_trips));
  }
  return found;
}

/// Returns the maximum of several measurements.
Result<double> Probe::rate(net::StreamId stream, bool sends) {
  double best = 0;
  for (int times = 0; times < kTimes; ++times) {
    GRADWIRE_ASSIGN_OR_RETURN(const auto found, rate_once(stream, sends));
    best = std::max(best, found);
  }
  return best;
}

/// Returns the highest rate between two hosts. Also a barrier.
Result<double> Probe::fastest_of_all() {
  double fastest = 0;
  for (const auto& path : cluster_.paths) fastest = std::max(fastest, path.bytes_per_second);
  GRADWIRE_ASSIGN_OR_RETURN(const auto all,
                            share(wire_, me_.rank, me_.ranks, fmt::format("{}", fastest)));
  for (const std::string& text : all) {
    double theirs = 0;
    std::from_chars(text.data(), text.data() + text.size(), theirs);
    fastest = std::max(fastest, theirs);
  }
  return fastest;
}

/// Measures the rates between two hosts again that are low compared with `fastest`: another program
/// may have held a processor or the link for a moment. Called at both ends.
Status Probe::repeat_slow(int other, double fastest) {
  const Rank peer = roster_.leader(other);
  for (topology::MeasuredPath& path : cluster_.paths) {
    if (path.to != other) continue;
    const net::StreamId stream{.peer = peer, .rail = path.rail};
    for (const bool sends : {me_.rank<peer, me_.rank> peer}) {
      GRADWIRE_RETURN_IF_ERROR(
          repeat_slow_rate(stream, sends ? &path.bytes_per_second : nullptr, fastest));
    }
  }
  return {};
}

/// `found`: the rate so far, at the sender; null at the receiver.
Status Probe::repeat_slow_rate(net::StreamId stream, double* found, double fastest) {
  const bool sends = found != nullptr;
  for (int times = 0; times < kMoreTimes; ++times) {
    const bool slow = sends && *found < kDoubtful * fastest;
    GRADWIRE_ASSIGN_OR_RETURN(const auto again, another(wire_, stream, sends, slow));
    if (!again) return {};
    GRADWIRE_ASSIGN_OR_RETURN(const auto rate, rate_once(stream, sends));
    if (sends) *found = std::max(*found, rate);
  }
  return {};
}

/// The receiver measures and sends the rate to the sender.
Result<double> Probe::rate_once(net::StreamId stream, bool sends) {
  std::vector<Flood> floods;
  std::vector<Sink> sinks;
  if (sends) {
    floods.emplace_back(stream);
  } else {
    sinks.emplace_back(stream);
  }
  GRADWIRE_RETURN_IF_ERROR(run_streams(wire_, floods, sinks, options_.bandwidth_time));
  std::array<std::byte, 8> note;
  if (!sends) store_little_endian(note.data(), std::bit_cast<std::uint64_t>(sinks.front().rate()));
  const Status told = sends ? wire_.receive(stream, note) : wire_.send(stream, note);
  if (!told) return tl::unexpected<Error>(told.error());
  return std::bit_cast<double>(load_little_endian<std::uint64_t>(note.data()));
}

Status Probe::send_datagrams(topology::MeasuredPath& path) {
  const auto rail = static_cast<std::size_t>(path.rail);
  const RosterEntry& there = roster_.entry(roster_.leader(path.to));
  if (rail >= me_.rails.size() || rail >= there.echoes.size()) return {};
  const bootstrap::RailEndpoint& from = me_.rails[rail];
  const net::SocketAddress& to = there.echoes[rail];
  GRADWIRE_ASSIGN_OR_RETURN(
      auto client, EchoClient::create(wire_.clock(), from.address, binding_of(from, to), to,
                                      echo_token(there.token)));
  const auto& own = cluster_.hosts[static_cast<std::size_t>(host())].rails;
  GRADWIRE_ASSIGN_OR_RETURN(const auto largest,
                            client.largest_packet(static_cast<std::size_t>(own[rail].mtu)));
  path.largest_packet = static_cast<int>(largest);
  if (largest == 0) return {};
  GRADWIRE_ASSIGN_OR_RETURN(const auto loss, client.loss(largest, options_.loss_questions));
  path.loss = loss.part();
  return {};
}

/// Measures between the first two ranks of each host.
Status Probe::look_inside() {
  const auto mates = roster_.ranks_on(host());
  if (mates.size() < 2 || (me_.rank != mates[0] && me_.rank != mates[1])) return {};
  const bool first = me_.rank == mates[0];
  const net::StreamId stream{.peer = first ? mates[1] : mates[0], .rail = 0};
  GRADWIRE_ASSIGN_OR_RETURN(const auto trips, round_trips(stream, first));
  double slower = 0;
  for (const bool sends : {first, !first}) {
    GRADWIRE_ASSIGN_OR_RETURN(const auto found, rate(stream, sends));
    slower = slower == 0 ? found : std::min(slower, found);
  }
  auto& own = cluster_.hosts[static_cast<std::size_t>(host())];
  if (slower > 0) own.inside = topology::Link{trips.median, slower};
  return {};
}

/// Every host sends to the next one concurrently, over all rails.
Status Probe::run_together() {
  const int hosts = roster_.count();
  if (!leads() || hosts < 2) return {};
  const Rank to = roster_.leader((host() + 1) % hosts);
  const Rank from = roster_.leader((host() + hosts - 1) % hosts);
  std::vector<Flood> floods;
  std::vector<Sink> sinks;
  for (int rail = 0; rail < rails_to(to); ++rail) {
    floods.emplace_back(net::StreamId{.peer = to, .rail = rail});
  }
  for (int rail = 0; rail < rails_to(from); ++rail) {
    sinks.emplace_back(net::StreamId{.peer = from, .rail = rail});
  }
  GRADWIRE_RETURN_IF_ERROR(run_streams(wire_, floods, sinks, options_.bandwidth_time));
  double sum = 0;
  for (const Sink& sink : sinks) sum += sink.rate();
  cluster_.hosts[static_cast<std::size_t>(host())].together_bytes_per_second = sum;
  return {};
}

/// Merges each leader's own host and paths.
Result<topology::Cluster> merged(const std::vector<std::string>& texts, const Roster& roster) {
  topology::Cluster all{.hosts = roster.hosts(), .paths = {}};
  for (int host = 0; host < roster.count(); ++host) {
    const auto number = static_cast<std::size_t>(host);
    auto part = topology::parse_cluster(texts[static_cast<std::size_t>(roster.leader(host))]);
    if (!part) return part;
    if (part->hosts.size() != all.hosts.size()) {
      return failure(ErrorKind::corrupted, "the ranks disagree on the list of hosts");
    }
    all.hosts[number] = part->hosts[number];
    all.paths.insert(all.paths.end(), part->paths.begin(), part->paths.end());
  }
  topology::set_rails_from_paths(all);
  return all;
}

/// Binds to `port`, or to a free port if it is taken, as by another container with the same
/// address.
Result<net::Socket> bind_echo(const net::SocketAddress& address, std::uint16_t port) {
  auto socket = net::bind_datagrams(address.with_port(port));
  if (socket || port == 0) return socket;
  log_warning("{}; using a free port, which a firewall may block", socket.error().message);
  return net::bind_datagrams(address.with_port(0));
}

}  // namespace

Result<topology::Cluster> measure_cluster(net::PollingTransport& transport, const Prober& me,
                                          const Clock& clock, const ProbeOptions& options) {
  Wire wire(transport, clock);
  std::vector<net::Socket> sockets;
  RosterEntry mine{.host = me.host,
                   .machine = me.machine,
                   .kernel = me.kernel.empty() ? me.host : me.kernel,
                   .cores = me.cores,
                   .token = random_hex(8)};
  for (const bootstrap::RailEndpoint& rail : me.rails) {
    GRADWIRE_ASSIGN_OR_RETURN(auto socket, bind_echo(rail.address, me.port));
    sockets.push_back(std::move(socket));
    mine.rails.push_back(
        {.interface = rail.interface,
         .mtu = net::interface_mtu(rail.interface).value_or(topology::MeasuredRail().mtu)});
  }
  const EchoServer echo(std::move(sockets), echo_token(mine.token));
  mine.echoes = echo.addresses();
  GRADWIRE_ASSIGN_OR_RETURN(const auto entries, share(wire, me.rank, me.ranks, to_json(mine)));
  GRADWIRE_ASSIGN_OR_RETURN(auto roster, Roster::of(entries));
  const auto found = Probe(wire, me, roster, options).run();
  if (!found) return found;
  // share() is also a barrier: it keeps the echo alive until no rank needs it.
  GRADWIRE_ASSIGN_OR_RETURN(const auto texts, share(wire, me.rank, me.ranks, to_json(*found)));
  return merged(texts, roster);
}

namespace {

/// Identifies the running kernel: the same in all its containers, until reboot.
std::string boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

/// Returns the id of the machine; the host name if it has none.
std::string machine_of(const bootstrap::RankEndpoint& endpoint) {
  return endpoint.machine.empty() ? endpoint.host : endpoint.machine;
}

/// Returns true if the rank is its machine's leader.
bool leads(Rank rank, const std::vector<bootstrap::RankEndpoint>& endpoints) {
  std::vector<std::string> names;
  for (const bootstrap::RankEndpoint& endpoint : endpoints) names.push_back(machine_of(endpoint));
  const Machines machines(names);
  return machines.leader(machines.number_of(rank)) == rank;
}

}  // namespace

Prober prober_of(const bootstrap::Job& job, const bootstrap::Mesh& mesh) {
  const bootstrap::RankEndpoint& endpoint = mesh.endpoints[static_cast<std::size_t>(job.rank)];
  return {.rank = job.rank,
          .ranks = job.world_size,
          .host = endpoint.host,
          .machine = machine_of(endpoint),
          .kernel = boot_id(),
          .cores = usable_cores(),
          .rails = endpoint.rails,
          .port = leads(job.rank, mesh.endpoints) ? job.port : std::uint16_t{0}};
}

}  // namespace gradwire::cli
