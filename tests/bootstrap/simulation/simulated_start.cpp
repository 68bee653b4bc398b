#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include <fmt/format.h>
#include <poll.h>

#include "gradwire/bootstrap/connect.h"
#include "gradwire/bootstrap/handshake/handshake_messages.h"
#include "tests/bootstrap/simulation/start_scenario.h"

namespace gradwire::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr const char* kSecret = "0123456789abcdef0123456789abcdef";
constexpr std::uint16_t kPort = 29500;

/// A rank may report its failure this long after its timeout: it waits for the reason from rank 0,
/// for a request in flight (kRankZeroPatience), and rank 0 lingers to tell the others.
constexpr Duration kGrace = seconds(16);

/// Nothing may wait for longer than that.
constexpr Duration kEnd = std::chrono::minutes(10);

/// TEST-NET-3 (RFC 5737): no interface of the machine that runs the test has such an address.
std::string host_of(int number) {
  return fmt::format("203.0.113.{}", number + 1);
}

NetworkFaults network_faults(const StartScenario& scenario) {
  NetworkFaults faults;
  switch (scenario.fault) {
    case StartFault::pieces:
      faults.pieces = true;
      break;
    case StartFault::refused:
      faults.refuse_one_in = 3;
      break;
    case StartFault::reset_once:
      faults.reset_at = scenario.message;
      break;
    case StartFault::resets:
      faults.reset_one_in = 40;
      break;
    case StartFault::delays:
      faults.delay_one_in = 30;
      faults.max_delay = scenario.timeout / 2;
      break;
    default:
      break;
  }
  return faults;
}

/// A process of the job.
struct Member {
  Rank rank = 0;
  SimProcess* process = nullptr;
  Time begun = {};
  Time ended = {};
  std::optional<Result<bootstrap::ConnectedRanks>> result;

  bool joined() const { return !process->killed() && result && result->has_value(); }
  bool failed() const { return !process->killed() && result && !result->has_value(); }
  std::string name() const { return fmt::format("rank {} at {}", rank, process->address()); }
};

class Start {
 public:
  explicit Start(const StartScenario& scenario)
      : scenario_(scenario), hosts_(scenario.seed, network_faults(scenario)) {}

  ~Start() {
    // Threads that are stuck must end.
    stopping_ = true;
    for (const auto& member : members_) member->process->kill();
    if (stranger_ != nullptr) stranger_->kill();
    hosts_.scheduler().run(Time::max());
  }

  StartOutcome run() {
    for (Rank rank = 0; rank < scenario_.world_size; ++rank) launch(rank);
    if (scenario_.fault == StartFault::duplicate_rank) add(scenario_.victim, 100, some_time());
    if (is_stranger()) add_stranger();
    const Time limit = hosts_.scheduler().now() + kEnd;
    StartOutcome outcome;
    bool ended = hosts_.scheduler().run(limit);
    for (const auto& member : members_) {
      if (!member->process->frozen()) continue;
      outcome.violation = check_others_have_ended(*member);
      if (outcome.violation) return outcome;
      member->process->kill();
      ended = hosts_.scheduler().run(limit);
    }
    if (!ended) {
      outcome.violation = "a thread waits for ever";
      return outcome;
    }
    outcome.happened = happened();
    outcome.violation = check(outcome);
    if (outcome.violation) *outcome.violation += history();
    return outcome;
  }

 private:
  using Violation = std::optional<std::string>;

  Violation check_others_have_ended(const Member& frozen) const {
    for (const auto& member : members_) {
      if (member.get() == &frozen || member->result) continue;
      return member->name() + " waits for ever for a frozen rank" + history();
    }
    return {};
  }

  bool is_stranger() const {
    return scenario_.fault == StartFault::silent_stranger ||
           scenario_.fault == StartFault::garbage_stranger;
  }

  /// The server takes some time to be sure of two processes with one rank.
  Duration some_time() {
    const bool longer = scenario_.fault == StartFault::duplicate_rank;
    return milliseconds(hosts_.random().between(0, longer ? 2000 : 300));
  }

  void launch(Rank rank) {
    const bool hit = rank == scenario_.victim;
    if (hit && scenario_.fault == StartFault::missing_rank) return;
    const bool late = rank == 0 && scenario_.fault == StartFault::late_rank_0;
    Member& member = add(rank, rank, late ? scenario_.delay : some_time());
    const bool dies =
        scenario_.fault == StartFault::death || scenario_.fault == StartFault::restart;
    if (hit && dies) member.process->kill_at(scenario_.message);
    if (hit && scenario_.fault == StartFault::freeze) member.process->freeze_at(scenario_.message);
  }

  bootstrap::Job job_of(Rank rank, const std::string& host) const {
    bootstrap::Job job;
    job.rank = rank;
    job.world_size = scenario_.world_size;
    job.master_address = host_of(0);
    job.master_port = kPort;
    job.shared_memory = false;
    job.addresses = {host};
    job.machine = host;
    job.secret = kSecret;
    job.job_id = "job";
    if (rank != scenario_.victim) return job;
    if (scenario_.fault == StartFault::wrong_secret) job.secret = std::string(32, 'x');
    if (scenario_.fault == StartFault::other_world_size) ++job.world_size;
    if (scenario_.fault == StartFault::other_job) job.job_id = "another";
    return job;
  }

  Member& add(Rank rank, int host, Duration delay) {
    Member& member = *members_.emplace_back(std::make_unique<Member>());
    member.rank = rank;
    member.process = &hosts_.add_process(host_of(host));
    member.process->start([this, &member, delay] { run(member, delay); });
    return member;
  }

  void run(Member& member, Duration delay) {
    const SimProcess& process = *member.process;
    try {
      process.pause(delay);
      member.begun = process.clock().now();
      member.result = bootstrap::connect_ranks(process, job_of(member.rank, process.address()),
                                               {.timeout = scenario_.timeout});
      member.ended = process.clock().now();
    } catch (const Killed&) {
      const bool again = scenario_.fault == StartFault::restart && !stopping_;
      if (again) add(member.rank, member.rank, scenario_.delay);
    }
  }

  void add_stranger() {
    stranger_ = &hosts_.add_process(host_of(200));
    stranger_->start([this] {
      for (int i = 0; i < 6; ++i) {
        stranger_->pause(some_time() / 2);
        const auto open = hosts_.listeners();
        if (!open.empty()) contact(open[hosts_.random().below(open.size())]);
      }
    });
  }

  void contact(const net::SocketAddress& to) {
    const net::Socket socket = std::move(*stranger_->start_connect(to, {}, ""));
    const net::Deadline deadline = net::Deadline::after(stranger_->clock(), seconds(1));
    if (!net::wait_for(socket, POLLOUT, deadline)) return;
    ++contacts_;
    if (scenario_.fault == StartFault::garbage_stranger) (void)net::send_some(socket, garbage());
    if (hosts_.random().one_in(2)) stranger_->pause(some_time() * 10);
  }

  /// Any bytes, or the beginning of a handshake without the secret.
  std::vector<std::byte> garbage() {
    Random& random = hosts_.random();
    const bootstrap::Claims claims{.from = static_cast<Rank>(random.below(6)),
                                   .to = static_cast<Rank>(random.below(6)),
                                   .world_size = scenario_.world_size};
    std::vector<std::byte> bytes = bootstrap::make_hello(claims, "store");
    if (random.one_in(2)) bytes.resize(1 + random.below(300));
    if (random.one_in(2)) bytes[random.below(bytes.size())] = std::byte{0xFF};
    return bytes;
  }

  bool happened() const {
    switch (scenario_.fault) {
      case StartFault::refused:
        return hosts_.refused > 0;
      case StartFault::reset_once:
      case StartFault::resets:
        return hosts_.resets > 0;
      case StartFault::delays:
        return hosts_.delayed > Duration::zero();
      case StartFault::restart:
      case StartFault::death:
      case StartFault::freeze:
        return std::ranges::any_of(members_, [](const auto& m) { return m->process->killed(); });
      case StartFault::silent_stranger:
      case StartFault::garbage_stranger:
        return contacts_ > 0;
      default:
        return true;
    }
  }

  Violation check(StartOutcome& outcome) {
    for (const auto& member : members_) {
      if (Violation wrong = check_failure(*member)) return wrong;
    }
    for (const auto& one : members_) {
      if (!one->joined()) continue;
      for (const auto& other : members_) {
        if (Violation wrong = check_pair(*one, *other)) return wrong;
      }
    }
    const Violation partial = check_all_joined(outcome);
    if (partial || outcome.joined || outcome.divided) return partial;
    return check_reasons();
  }

  Violation check_failure(const Member& member) const {
    if (!member.failed()) return {};
    const Error& error = member.result->error();
    if (error.message.empty()) return member.name() + " failed without a reason";
    if (member.ended - member.begun <= scenario_.timeout + kGrace + hosts_.delayed) return {};
    return member.name() + " failed too late";
  }

  /// `one` has joined.
  static Violation check_pair(const Member& one, const Member& other) {
    if (&one == &other || !other.joined()) return {};
    const std::string both = one.name() + " and " + other.name();
    if (one.rank == other.rank) return both + " joined as the same rank";
    const bootstrap::ConnectedRanks &a = **one.result, &b = **other.result;
    if (!std::ranges::equal(a.endpoints, b.endpoints, {}, encode_endpoint, encode_endpoint)) {
      return both + " have different tables";
    }
    const auto& to = a.connections.sockets[static_cast<std::size_t>(other.rank)];
    const auto& from = b.connections.sockets[static_cast<std::size_t>(one.rank)];
    if (to.size() != 1 || from.size() != 1 ||
        connection_number(to.front()) != connection_number(from.front())) {
      return both + " are not connected to each other";
    }
    return {};
  }

  static std::string encode_endpoint(const bootstrap::RankEndpoint& endpoint) {
    return encode(endpoint);
  }

  const Member* joined_as(Rank rank) const {
    const auto found = std::ranges::find_if(
        members_, [rank](const auto& m) { return m->rank == rank && m->joined(); });
    return found == members_.end() ? nullptr : found->get();
  }

  /// The last message of a start may be lost on its way to a rank: that one fails, and its end
  /// tells the others.
  Violation check_all_joined(StartOutcome& outcome) const {
    int joined = 0;
    for (Rank rank = 0; rank < scenario_.world_size; ++rank) joined += joined_as(rank) ? 1 : 0;
    outcome.joined = joined == scenario_.world_size;
    outcome.divided = joined > 0 && !outcome.joined;
    if (!outcome.divided) return {};
    const std::array may_divide = {StartFault::reset_once, StartFault::resets, StartFault::delays,
                                   StartFault::restart,    StartFault::death,  StartFault::freeze};
    if (std::ranges::find(may_divide, scenario_.fault) == may_divide.end()) {
      return "only some ranks joined";
    }
    for (const auto& member : members_) {
      if (!member->joined()) continue;
      for (Rank rank = 0; rank < scenario_.world_size; ++rank) {
        if (rank == member->rank || joined_as(rank)) continue;
        const auto& sockets = (*member->result)->connections.sockets;
        if (!net::has_ended(sockets[static_cast<std::size_t>(rank)].front())) {
          return fmt::format("{} does not see that rank {} has left", member->name(), rank);
        }
      }
    }
    return {};
  }

  /// No rank has joined.
  Violation check_reasons() const {
    const std::string victim = fmt::format("rank {}", scenario_.victim);
    switch (scenario_.fault) {
      case StartFault::none:
      case StartFault::pieces:
      case StartFault::silent_stranger:
      case StartFault::garbage_stranger:
        return "a start failed that no fault prevents";
      case StartFault::late_rank_0:
        if (scenario_.delay > scenario_.timeout * 11 / 10) return every_reason_names("rank 0", 0);
        if (scenario_.delay < scenario_.timeout / 2) return "rank 0 came in time";
        // If it comes as the others give up, some of them miss each other.
        return {};
      case StartFault::missing_rank:
      case StartFault::death:
      case StartFault::freeze:
        return every_reason_names(victim, scenario_.victim);
      case StartFault::duplicate_rank:
        return some_reason_names("another process has");
      case StartFault::wrong_secret:
        return some_reason_names("wrong secret");
      case StartFault::other_world_size:
        return some_reason_names("world size");
      case StartFault::other_job:
        return some_reason_names("job id");
      default:
        return {};
    }
  }

  static bool names(const Member& member, std::string_view what) {
    return member.result->error().message.find(what) != std::string::npos;
  }

  /// Except that of the rank itself.
  Violation every_reason_names(const std::string& what, Rank itself) const {
    const bool all = std::ranges::all_of(members_, [&](const auto& m) {
      return !m->failed() || m->rank == itself || names(*m, what);
    });
    return all ? Violation() : "a reason does not name " + what;
  }

  Violation some_reason_names(const std::string& what) const {
    const bool any = std::ranges::any_of(
        members_, [&](const auto& m) { return m->failed() && names(*m, what); });
    return any ? Violation() : "no reason names " + what;
  }

  std::string history() const {
    std::string text = fmt::format("\n{} with {} ranks, victim {}, message {}, delay {} ms",
                                   name_of(scenario_.fault), scenario_.world_size, scenario_.victim,
                                   scenario_.message, scenario_.delay / milliseconds(1));
    for (const auto& member : members_) {
      const std::string end = member->process->killed() ? "was killed"
                              : member->joined()        ? "joined"
                              : member->failed()        ? member->result->error().message
                                                        : "is not done";
      text += fmt::format("\n  {}: {} after {} ms", member->name(), end,
                          (member->ended - member->begun) / milliseconds(1));
    }
    return text + "\n";
  }

  StartScenario scenario_;
  SimHosts hosts_;
  std::vector<std::unique_ptr<Member>> members_;
  SimProcess* stranger_ = nullptr;
  int contacts_ = 0;
  bool stopping_ = false;
};

}  // namespace

StartOutcome simulate_start(const StartScenario& scenario) {
  return Start(scenario).run();
}

}  // namespace gradwire::test
