#include <algorithm>
#include <limits>
#include <optional>
#include <vector>

#include "gradwire/pipeline/generators/generators.h"

namespace gradwire::pipeline {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

/// One rank of the greedy simulation.
struct Worker {
  MicroBatch forwards = 0;  ///< Number done.
  MicroBatch inputs = 0;
  MicroBatch weights = 0;
  double free_at = 0;
};

class Greedy {
 public:
  explicit Greedy(const PipelineOptions& options)
      : options_(options),
        schedule_(without_order(options)),
        workers_(static_cast<std::size_t>(options.ranks)),
        links_(2 * workers_.size(), 0) {
    const auto batches = static_cast<std::size_t>(options.micro_batches);
    arrivals_.assign(2 * workers_.size(), std::vector<double>(batches, kNever));
    std::ranges::fill(arrivals_[0], 0);  // The input of the first stage.
  }

  PipelineSchedule run() {
    while (const auto rank = next_rank()) step(*rank);
    schedule_.kept = options_.kept;
    return std::move(schedule_);
  }

 private:
  /// When the input of a stage's next forward has arrived, or the gradient of its next backward.
  double forward_at(std::size_t s) const { return at(2 * s, workers_[s].forwards); }
  double input_at(std::size_t s) const {
    if (workers_[s].inputs >= workers_[s].forwards) return kNever;
    return s + 1 == workers_.size() ? 0 : at(2 * s + 1, workers_[s].inputs);
  }
  double at(std::size_t queue, MicroBatch batch) const {
    return batch < options_.micro_batches ? arrivals_[queue][static_cast<std::size_t>(batch)]
                                          : kNever;
  }

  bool may_forward(std::size_t s) const {
    const Worker& worker = workers_[s];
    return worker.forwards < options_.micro_batches &&
           worker.forwards - worker.weights < options_.kept;
  }

  /// Earliest time at which a rank can begin something.
  double begin_of(std::size_t s) const {
    const Worker& worker = workers_[s];
    const double forward = may_forward(s) ? forward_at(s) : kNever;
    const double weight = worker.weights < worker.inputs ? 0 : kNever;
    return std::max(worker.free_at, std::min({forward, input_at(s), weight}));
  }

  std::optional<std::size_t> next_rank() const {
    std::optional<std::size_t> first;
    for (std::size_t s = 0; s < workers_.size(); ++s) {
      if (begin_of(s) == kNever) continue;
      if (!first || begin_of(s) < begin_of(*first)) first = s;
    }
    return first;
  }

  /// Computes what has the highest priority of what a rank can begin first.
  void step(std::size_t s) {
    Worker& worker = workers_[s];
    const double now = begin_of(s);
    if (input_at(s) <= now) {
      compute(s, Compute::backward_input, worker.inputs++, now);
      if (s > 0) send(2 * s, 2 * (s - 1) + 1, worker.inputs - 1, worker.free_at);
    } else if (may_forward(s) && forward_at(s) <= now) {
      compute(s, Compute::forward, worker.forwards++, now);
      if (s + 1 < workers_.size())
        send(2 * s + 1, 2 * (s + 1), worker.forwards - 1, worker.free_at);
    } else {
      compute(s, Compute::backward_weight, worker.weights++, now);
    }
  }

  void compute(std::size_t s, Compute what, MicroBatch batch, double now) {
    const auto stage = static_cast<Stage>(s);
    schedule_.order[s].push_back({what, stage, batch});
    workers_[s].free_at = now + options_.costs.of(stage).of(what);
  }

  void send(std::size_t link, std::size_t queue, MicroBatch batch, double now) {
    links_[link] = std::max(links_[link], now) + options_.costs.transfer;
    arrivals_[queue][static_cast<std::size_t>(batch)] = links_[link] + options_.costs.latency;
  }

  const PipelineOptions& options_;
  PipelineSchedule schedule_;
  std::vector<Worker> workers_;
  std::vector<double> links_;  ///< Free at, of stage s: 2s to the stage before, 2s + 1 to the next.
  std::vector<std::vector<double>> arrivals_;  ///< At stage s: 2s of inputs, 2s + 1 of gradients.
};

}  // namespace

PipelineSchedule zero_bubble(const PipelineOptions& options) {
  return Greedy(options).run();
}

}  // namespace gradwire::pipeline
