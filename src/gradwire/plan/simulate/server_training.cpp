#include "gradwire/plan/simulate/server_training.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <vector>

namespace gradwire::plan {
namespace {

class Run {
 public:
  Run(const ServerModel& model, std::uint64_t seed)
      : model_(model),
        random_(seed),
        read_(static_cast<std::size_t>(model.workers)),
        share_(model.bytes / model.servers / model.server_rate),
        own_(model.bytes / model.worker_rate) {}

  ServerTraining asynchronous(int steps) {
    for (int worker = 0; worker < model_.workers; ++worker) begin(worker, 0);
    const std::int64_t warm = std::int64_t{model_.workers} * (steps / 10);
    const std::int64_t all = warm + std::int64_t{model_.workers} * steps;
    double begun = 0;
    while (version_ < all) {
      const Push push = pushes_.top();
      pushes_.pop();
      // Segments arrive as they leave: a transfer takes the time of the slower port.
      const double come = std::max(occupy(in_, push.at), push.at + own_) + model_.latency;
      if (version_ == warm) begun = begin_counting(come);
      count(push.worker);
      ++version_;
      const double sent = std::max(occupy(out_, come), come + own_) + model_.latency;
      begin(push.worker, sent);
      end_ = come;
    }
    return result(end_ - begun, static_cast<double>(all - warm));
  }

  ServerTraining synchronous(int steps) {
    double now = 0;
    for (int step = 0; step < steps; ++step) {
      for (int worker = 0; worker < model_.workers; ++worker) begin(worker, now);
      double last = 0;
      for (; !pushes_.empty(); pushes_.pop()) {
        const double at = pushes_.top().at;
        last = std::max({last, occupy(in_, at), at + own_});
      }
      const double applied = last + model_.latency;
      double pulled = applied + own_;
      for (int worker = 0; worker < model_.workers; ++worker)
        pulled = std::max(pulled, occupy(out_, applied));
      now = pulled + model_.latency;
    }
    return result(now, static_cast<double>(steps) * model_.workers);
  }

 private:
  struct Push {
    double at;
    int worker;
    bool operator>(const Push& other) const {
      return at != other.at ? at > other.at : worker > other.worker;
    }
  };

  /// A server's port transfers a worker's part; returns when that ends.
  double occupy(double& free, double now) const {
    free = std::max(free, now) + share_;
    return free;
  }

  /// The worker has the current parameters, and begins to compute.
  void begin(int worker, double at) {
    read_[static_cast<std::size_t>(worker)] = version_;
    pushes_.push({at + model_.compute.draw(random_), worker});
  }

  double begin_counting(double now) {
    stale_ = max_staleness_ = 0;
    return now;
  }

  void count(int worker) {
    const auto stale = static_cast<double>(version_ - read_[static_cast<std::size_t>(worker)]);
    stale_ += stale;
    max_staleness_ = std::max(max_staleness_, stale);
  }

  ServerTraining result(double seconds, double updates) const {
    return {.updates_per_second = updates / seconds,
            .step = seconds * model_.workers / updates,
            .staleness = stale_ / updates,
            .max_staleness = max_staleness_,
            .server_busy = std::min(1.0, updates * share_ / seconds)};
  }

  const ServerModel& model_;
  Random random_;
  std::vector<std::int64_t> read_;  ///< By worker: the version that it computes with.
  double share_, own_;              ///< Transfer seconds of a server's and a worker's port.
  std::priority_queue<Push, std::vector<Push>, std::greater<>> pushes_;
  std::int64_t version_ = 0;
  double in_ = 0, out_ = 0, end_ = 0;
  double stale_ = 0, max_staleness_ = 0;
};

}  // namespace

ServerTraining simulate_servers(const ServerModel& model, int steps, std::uint64_t seed) {
  Run run(model, seed);
  return model.asynchronous ? run.asynchronous(steps) : run.synchronous(steps);
}

}  // namespace gradwire::plan
