#include "gradwire/pipeline/dependencies.h"

#include <algorithm>
#include <array>
#include <optional>

namespace gradwire::pipeline {
namespace {

constexpr std::size_t kNone = static_cast<std::size_t>(-1);

class Builder {
 public:
  Builder(const PipelineSchedule& schedule, int steps) : schedule_(schedule), steps_(steps) {}

  std::vector<Node> build() {
    add_tasks();
    for (const Edge& edge : schedule_.edges) {
      add_transfers(edge.from, edge.to, /*backward=*/false);
      if (schedule_.trains) add_transfers(edge.to, edge.from, /*backward=*/true);
    }
    for (Messages& each : messages_) {
      limit_sends(each);
      limit_receives(each);
    }
    add_local_dependencies();
    return std::move(nodes_);
  }

 private:
  /// The producer, transfer and user of each message of one edge and direction.
  using Messages = std::vector<std::array<std::size_t, 3>>;

  /// Index of a task of a step by stage, micro-batch and kind; a backward counts as input.
  enum Kind { kForward, kBackward, kWeight };
  std::size_t& at(int step, Stage stage, MicroBatch micro_batch, Kind kind) {
    const auto place = ((static_cast<std::size_t>(step) * schedule_.rank_of.size() +
                         static_cast<std::size_t>(stage)) *
                            static_cast<std::size_t>(schedule_.micro_batches) +
                        static_cast<std::size_t>(micro_batch)) *
                           3 +
                       static_cast<std::size_t>(kind);
    return index_[place];
  }

  void order(std::size_t before, std::size_t after) {
    if (before == kNone || after == kNone) return;
    nodes_[before].next.push_back(after);
    ++nodes_[after].waits_for;
  }

  void add_tasks() {
    index_.assign(static_cast<std::size_t>(steps_) * schedule_.rank_of.size() *
                      static_cast<std::size_t>(schedule_.micro_batches) * 3,
                  kNone);
    last_.assign(schedule_.order.size(), kNone);
    const int drained = steps_ + max_delay(schedule_);
    for (int period = 0; period < drained; ++period) {
      if (schedule_.barrier && period > 0 && period < steps_) add_barrier(period);
      for (Rank rank = 0; rank < schedule_.ranks(); ++rank) add_tasks_of(rank, period);
    }
    successor_.assign(nodes_.size(), kNone);
    sends_.resize(nodes_.size());
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      if (predecessor_[i] != kNone) successor_[predecessor_[i]] = i;
    }
  }

  /// The tasks that a rank computes in the time of one step, of this and of earlier steps.
  void add_tasks_of(Rank rank, int period) {
    std::size_t& last = last_[static_cast<std::size_t>(rank)];
    for (const Task& task : schedule_.order[static_cast<std::size_t>(rank)]) {
      const int step = period - task.delay;
      if (step < 0 || step >= steps_) continue;
      const std::size_t node = add({.step = step, .task = task, .rank = rank});
      predecessor_.push_back(last);
      order(last, node);
      last = node;
      const bool input = task.compute == Compute::backward_input;
      const Kind kind = task.compute == Compute::forward             ? kForward
                        : input || task.compute == Compute::backward ? kBackward
                                                                     : kWeight;
      at(step, task.stage, task.micro_batch, kind) = node;
    }
  }

  void add_barrier(int step) {
    const std::size_t node = add({.kind = Node::Kind::barrier, .step = step});
    predecessor_.push_back(kNone);
    for (std::size_t& last : last_) {
      order(last, node);
      last = node;
    }
  }

  std::size_t add(Node node) {
    nodes_.push_back(std::move(node));
    return nodes_.size() - 1;
  }

  /// The transfers from stage to stage, in the order in which their data is produced.
  void add_transfers(Stage from, Stage to, bool backward) {
    const Rank sender = schedule_.rank_of[static_cast<std::size_t>(from)];
    const Rank receiver = schedule_.rank_of[static_cast<std::size_t>(to)];
    Messages& all = messages_.emplace_back();
    const Kind kind = backward ? kBackward : kForward;
    for (int step = 0; step < steps_; ++step) {
      for (MicroBatch i = 0; i < schedule_.micro_batches; ++i) {
        const std::size_t producer = at(step, from, i, kind);
        const std::size_t user = at(step, to, i, kind);
        if (producer == kNone || user == kNone) continue;
        if (sender == receiver) {
          order(producer, user);
          continue;
        }
        const std::size_t transfer = add({.kind = Node::Kind::transfer,
                                          .step = step,
                                          .task = nodes_[producer].task,
                                          .to = to,
                                          .rank = sender,
                                          .to_rank = receiver});
        order(producer, transfer);
        order(transfer, user);
        all.push_back({producer, transfer, user});
        sends_[producer].push_back(transfer);
      }
    }
  }

  void limit_sends(Messages& all) {
    if (schedule_.sends_in_flight == kUnlimited) return;
    std::ranges::sort(all, {}, [](const auto& each) { return each[0]; });
    const auto limit = static_cast<std::size_t>(schedule_.sends_in_flight);
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (limit == 0) {
        order(all[i][1], successor_[all[i][0]]);
      } else if (i >= limit) {
        order(all[i - limit][1], all[i][0]);
      }
    }
  }

  void limit_receives(Messages& all) {
    if (schedule_.receives_ahead == kUnlimited) return;
    std::ranges::sort(all, {}, [](const auto& each) { return each[2]; });
    const auto limit = static_cast<std::size_t>(schedule_.receives_ahead);
    for (std::size_t i = limit; i < all.size(); ++i) {
      const std::size_t before = predecessor_[all[i - limit][2]];
      order(before, all[i][1]);
      if (before == kNone || schedule_.sends_in_flight > 0) continue;
      for (const std::size_t sent : sends_[before]) order(sent, all[i][1]);  // It blocks the rank.
    }
  }

  /// A backward follows its forward, the gradients of weights those of inputs.
  void add_local_dependencies() {
    for (int step = 0; step < steps_; ++step) {
      for (Stage stage = 0; stage < schedule_.stages(); ++stage) {
        for (MicroBatch i = 0; i < schedule_.micro_batches; ++i) {
          order(at(step, stage, i, kForward), at(step, stage, i, kBackward));
          order(at(step, stage, i, kBackward), at(step, stage, i, kWeight));
        }
      }
    }
  }

  const PipelineSchedule& schedule_;
  int steps_;
  std::vector<Node> nodes_;
  std::vector<std::size_t> index_;
  std::vector<std::size_t> last_;         ///< By rank: its last task so far.
  std::vector<std::size_t> predecessor_;  ///< By task: the one before it on its rank.
  std::vector<std::size_t> successor_;
  std::vector<std::vector<std::size_t>> sends_;  ///< By task: the transfers of its result.
  std::vector<Messages> messages_;
};

}  // namespace

std::vector<Node> dependencies_of(const PipelineSchedule& schedule, int steps) {
  return Builder(schedule, steps).build();
}

std::vector<std::size_t> blocked_nodes(const std::vector<Node>& nodes) {
  std::vector<int> waits;
  std::vector<std::size_t> ready;
  for (const Node& node : nodes) {
    waits.push_back(node.waits_for);
    if (node.waits_for == 0) ready.push_back(waits.size() - 1);
  }
  while (!ready.empty()) {
    const std::size_t done = ready.back();
    ready.pop_back();
    for (const std::size_t next : nodes[done].next) {
      if (--waits[next] == 0) ready.push_back(next);
    }
  }
  std::vector<std::size_t> blocked;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (waits[i] > 0) blocked.push_back(i);
  }
  return blocked;
}

}  // namespace gradwire::pipeline
