#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "gradwire/pipeline/generators/generators.h"

namespace gradwire::pipeline {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

/// A stage in the virtual run.
struct Progress {
  MicroBatch forwards = 0;  ///< Number done.
  MicroBatch inputs = 0;
  MicroBatch weights = 0;
  int set_aside = 0;                     ///< Places for the later stages of its rank.
  std::vector<double> inputs_at;         ///< By micro-batch: arrival of the activation ...
  std::vector<double> output_gradients;  ///< ... and of the gradient of the output.
};

struct Worker {
  std::vector<Stage> stages;
  int kept = 0;
  int max_kept = 0;  ///< Maximum of `kept`.
  double free_at = 0;
};

/// A task that a rank may compute, and the earliest time at which it can begin.
struct Choice {
  Task task;
  double at = kNever;
};

class Greedy {
 public:
  Greedy(PipelineSchedule schedule, const PipelineCosts& costs, const std::vector<int>& kept)
      : schedule_(std::move(schedule)),
        costs_(costs),
        stages_(schedule_.rank_of.size()),
        workers_(schedule_.order.size()) {
    for (std::size_t rank = 0; rank < workers_.size(); ++rank) workers_[rank].max_kept = kept[rank];
    schedule_.kept = std::ranges::max(kept);
    const auto batches = static_cast<std::size_t>(schedule_.micro_batches);
    for (Progress& stage : stages_) {
      stage.inputs_at.assign(batches, kNever);
      stage.output_gradients.assign(batches, kNever);
    }
    std::ranges::fill(stages_.front().inputs_at, 0);
    for (Stage s = schedule_.stages(); s-- > 0;) {
      std::vector<Stage>& all = worker_of(s).stages;  // The later ones first.
      at(s).set_aside = static_cast<int>(all.size());
      all.push_back(s);
    }
  }

  PipelineSchedule run() {
    while (const auto choice = first_choice()) compute(*choice);
    return std::move(schedule_);
  }

 private:
  Progress& at(Stage stage) { return stages_[static_cast<std::size_t>(stage)]; }
  const Progress& at(Stage stage) const { return stages_[static_cast<std::size_t>(stage)]; }
  Rank rank_of(Stage stage) const { return schedule_.rank_of[static_cast<std::size_t>(stage)]; }
  Worker& worker_of(Stage stage) { return workers_[static_cast<std::size_t>(rank_of(stage))]; }
  bool is_last(Stage stage) const { return stage + 1 == schedule_.stages(); }

  Choice input_of(Stage s) const {
    const Progress& stage = at(s);
    if (stage.inputs >= stage.forwards) return {};
    return {{Compute::backward_input, s, stage.inputs},
            stage.output_gradients[static_cast<std::size_t>(stage.inputs)]};
  }
  Choice forward_of(Stage s, const Worker& worker) const {
    const Progress& stage = at(s);
    const bool room = worker.kept + 1 + stage.set_aside <= worker.max_kept;
    if (stage.forwards == schedule_.micro_batches || !room) return {};
    return {{Compute::forward, s, stage.forwards},
            stage.inputs_at[static_cast<std::size_t>(stage.forwards)]};
  }
  Choice weight_of(Stage s) const {
    const Progress& stage = at(s);
    if (stage.weights >= stage.inputs) return {};
    return {{Compute::backward_weight, s, stage.weights}, 0};
  }

  /// The first that can begin; of several, the most urgent.
  Choice choice_of(const Worker& worker) const {
    Choice best;
    const auto consider = [&](Choice choice) {
      choice.at = std::max(choice.at, worker.free_at);
      if (choice.at < best.at) best = choice;
    };
    for (const Stage s : worker.stages) consider(input_of(s));
    for (const Stage s : worker.stages) consider(forward_of(s, worker));
    for (const Stage s : worker.stages) consider(weight_of(s));
    return best;
  }

  std::optional<Choice> first_choice() const {
    Choice first;
    for (const Worker& worker : workers_) {
      const Choice choice = choice_of(worker);
      if (choice.at < first.at) first = choice;
    }
    return first.at == kNever ? std::nullopt : std::optional(first);
  }

  void compute(const Choice& choice) {
    const Task& task = choice.task;
    Worker& worker = worker_of(task.stage);
    schedule_.order[static_cast<std::size_t>(rank_of(task.stage))].push_back(task);
    worker.free_at = choice.at + costs_.of(task.stage).of(task.compute);
    const auto batch = static_cast<std::size_t>(task.micro_batch);
    Progress& stage = at(task.stage);
    if (task.compute == Compute::forward) {
      ++stage.forwards;
      ++worker.kept;
      if (is_last(task.stage)) {
        stage.output_gradients[batch] = worker.free_at;
      } else {
        at(task.stage + 1).inputs_at[batch] = arrival(task.stage, task.stage + 1, worker.free_at);
      }
    } else if (task.compute == Compute::backward_input) {
      ++stage.inputs;
      if (task.stage > 0) {
        at(task.stage - 1).output_gradients[batch] =
            arrival(task.stage, task.stage - 1, worker.free_at);
      }
    } else {
      ++stage.weights;
      --worker.kept;
    }
  }

  double arrival(Stage from, Stage to, double now) {
    if (rank_of(from) == rank_of(to)) return now;
    double& free_at = ports_[{rank_of(from), costs_.shares_ports ? rank_of(from) : rank_of(to)}];
    free_at = std::max(free_at, now) + costs_.transfer_between(from, to);
    return free_at + costs_.latency;
  }

  PipelineSchedule schedule_;
  const PipelineCosts& costs_;
  std::vector<Progress> stages_;
  std::vector<Worker> workers_;
  std::map<std::pair<Rank, Rank>, double> ports_;  ///< When a port is free.
};

}  // namespace

PipelineSchedule order_greedily(PipelineSchedule schedule, const PipelineCosts& costs, int kept) {
  const std::vector<int> all(schedule.order.size(), kept);
  return order_greedily(std::move(schedule), costs, all);
}

PipelineSchedule order_greedily(PipelineSchedule schedule, const PipelineCosts& costs,
                                const std::vector<int>& kept) {
  return Greedy(std::move(schedule), costs, kept).run();
}

}  // namespace gradwire::pipeline
