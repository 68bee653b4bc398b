#include "gradwire/plan/simulate/server_training.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <span>
#include <vector>

#include "gradwire/base/refuse.h"
#include "gradwire/servers/server_core.h"

namespace gradwire::plan {
namespace {

/// Workers, ports and a server in virtual time.
class Run final : private servers::ShardStore {
 public:
  Run(const ServerModel& model, std::uint64_t seed)
      : model_(model),
        workers_(model.policy.workers),
        random_(seed),
        core_(model.policy, 1, *this, [this](const servers::Applied& a) { count(a); }),
        push_(times_of(model.bytes)),
        pull_(times_of(model.pull_bytes)) {}

  ServerTraining run(int steps) {
    const std::int64_t warm = std::int64_t{workers_} * std::max(1, steps / 10);
    const std::int64_t all = warm + std::int64_t{workers_} * steps;
    for (Rank worker = 0; worker < workers_; ++worker) begin(worker, 0, 0);
    while (pushed_ < all) {
      const Event event = events_.top();
      events_.pop();
      event.arrives ? arrive(event) : send(event);
      if (pushed_ == warm && event.arrives) begin_counting(event.at);
    }
    return result();
  }

 private:
  struct Event {
    double at = 0;
    Rank worker = 0;
    bool arrives = false;   ///< At the server; otherwise the worker begins to send.
    std::int64_t base = 0;  ///< Version of the parameters of which it is the gradient.
    bool operator>(const Event& other) const {
      return at != other.at ? at > other.at : worker > other.worker;
    }
  };

  /// Transfer seconds of a server's port and of a worker's, which sends its slice of a group's.
  struct Transfer {
    double share = 0, own = 0;
  };
  Transfer times_of(double bytes) const {
    return {bytes / model_.servers / model_.server_rate,
            bytes / model_.members / model_.worker_rate};
  }

  void apply(std::size_t, std::span<const servers::GradientId>, double) override {}
  void drop(servers::GradientId) override { ++dropped_; }

  /// A server's port transfers a worker's part; returns when that ends.
  static double occupy(double& free, double now, double seconds) {
    free = std::max(free, now) + seconds;
    return free;
  }

  /// The worker has the parameters of this version, and begins to compute.
  void begin(Rank worker, double at, std::int64_t version) {
    events_.push({at + pass_of(worker), worker, false, version});
  }

  /// A group's pass takes as long as its slowest member's.
  double pass_of(Rank worker) {
    double slowest = 0;
    for (int member = 0; member < model_.members; ++member) {
      const Rank rank = worker * model_.members + member;
      slowest = std::max(slowest, model_.times.draw(rank, random_) * model_.compute.draw(random_));
    }
    return slowest + model_.inside;
  }

  void send(Event event) {
    // Segments arrive as they leave: a transfer takes the time of the slower port.
    event.at = std::max(occupy(in_, event.at, push_.share), event.at + push_.own) + model_.latency;
    event.arrives = true;
    events_.push(event);
  }

  void arrive(const Event& event) {
    end_ = event.at;
    ++pushed_;
    auto& clock = clocks_[static_cast<std::size_t>(event.worker)];
    // One that was late goes on with the step of the others.
    if (model_.policy.mode == servers::Mode::sync) clock = event.base;
    core_.on_push({.worker = event.worker, .clock = clock, .base = event.base});
    if (++clock % model_.pull_every != 0) {
      begin(event.worker, event.at, event.base);
    } else {
      core_.on_pull(event.worker, 0, clock);
    }
    const std::vector<servers::Answer> answers = core_.take_answers();
    double sent = event.at + pull_.own;
    for (std::size_t i = 0; i < answers.size(); ++i) {
      sent = std::max(sent, occupy(out_, event.at, pull_.share));
    }
    for (const servers::Answer& answer : answers) {
      begin(answer.worker, sent + model_.latency, answer.version);
    }
  }

  void count(const servers::Applied& gradient) {
    if (gradient.outcome == servers::Outcome::dropped) return;
    staleness_.add(gradient.version - gradient.base);
  }

  void begin_counting(double now) {
    staleness_ = {};
    dropped_ = 0;
    begun_ = now;
    counted_from_ = pushed_;
  }

  ServerTraining result() const {
    const double seconds = end_ - begun_;
    const auto pushes = static_cast<double>(pushed_ - counted_from_);
    return {.updates_per_second = static_cast<double>(staleness_.count()) / seconds,
            .step = seconds * workers_ / pushes,
            .late = static_cast<double>(dropped_) / pushes,
            .staleness = staleness_.mean(),
            .staleness_p99 = staleness_.quantile(0.99),
            .max_staleness = staleness_.max(),
            .server_busy = std::min(1.0, pushes * push_.share / seconds)};
  }

  const ServerModel& model_;
  const int workers_;
  Random random_;
  servers::ServerCore core_;
  servers::Staleness staleness_;  ///< Since counting began.
  std::vector<std::int64_t> clocks_ = std::vector<std::int64_t>(static_cast<std::size_t>(workers_));
  Transfer push_, pull_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::int64_t pushed_ = 0, counted_from_ = 0, dropped_ = 0;
  double in_ = 0, out_ = 0, begun_ = 0, end_ = 0;
};

}  // namespace

ServerTraining simulate_servers(const ServerModel& model, int steps, std::uint64_t seed) {
  servers::check(model.policy);
  for (const auto& [worker, slow] : model.times.slow) {
    const int workers = model.policy.workers * model.members;
    if (worker >= 0 && worker < workers) continue;
    refuse("worker {} is slow, and there are {} workers", worker, workers);
  }
  return Run(model, seed).run(steps);
}

double inside_of_group(int members, double bytes, double rate, double latency) {
  return 2 * (members - 1) * (latency + bytes / members / rate);
}

}  // namespace gradwire::plan
