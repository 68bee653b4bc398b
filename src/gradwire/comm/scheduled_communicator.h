#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "gradwire/comm/communicator.h"
#include "gradwire/comm/planner.h"
#include "gradwire/engine/engine.h"
#include "gradwire/engine/operations/operation.h"

namespace gradwire {

/// An engine that a communicator and its subgroups share. The last of them closes it; Works keep it
/// alive.
class SharedEngine {
 public:
  explicit SharedEngine(std::shared_ptr<engine::Engine> engine) : engine_(std::move(engine)) {}
  ~SharedEngine();
  SharedEngine(const SharedEngine&) = delete;
  SharedEngine& operator=(const SharedEngine&) = delete;

  const std::shared_ptr<engine::Engine>& engine() const { return engine_; }

  /// The lowest number that no subgroup of this rank has.
  std::int64_t next_group() const { return next_group_; }
  void reserve_groups(std::int64_t number);

 private:
  std::shared_ptr<engine::Engine> engine_;
  std::atomic<std::int64_t> next_group_ = 1;
};

/// Implementation of Communicator: checks arguments, gets a plan for each operation from the
/// planner, and posts it to an engine.
class ScheduledCommunicator final : public Communicator {
 public:
  /// `group`: number of the subgroup, equal on all of its ranks; 0: all ranks of the engine.
  ScheduledCommunicator(Rank rank, const CommunicatorOptions& options,
                        std::shared_ptr<Planner> planner, std::shared_ptr<SharedEngine> engine,
                        std::uint16_t group = 0);

  /// Plans later operations with `planner`. Not thread-safe.
  void set_planner(std::shared_ptr<Planner> planner) { planner_ = std::move(planner); }

  Duration operation_timeout() const { return options_.operation_timeout; }

  Rank rank() const override { return rank_; }
  EngineTraits traits() const override { return engine().traits(); }
  int size() const override { return planner_->topology().ranks(); }

  std::shared_ptr<Communicator> subgroup(std::span<const Rank> ranks) override;

  Work all_reduce(LentSpan data, ReduceOp op, const OperationOptions& options) override;
  Work broadcast(LentSpan data, Rank root, const OperationOptions& options) override;
  Work all_gather(LentConstSpan input, LentSpan output, const OperationOptions& options) override;
  Work reduce_scatter(LentConstSpan input, LentSpan output, ReduceOp op,
                      const OperationOptions& options) override;
  Work reduce(LentSpan data, Rank root, ReduceOp op, const OperationOptions& options) override;
  Work gather(LentConstSpan input, LentSpan output, Rank root,
              const OperationOptions& options) override;
  Work scatter(LentConstSpan input, LentSpan output, Rank root,
               const OperationOptions& options) override;
  Work all_to_all(LentConstSpan input, LentSpan output, const OperationOptions& options) override;
  Work all_to_all(LentConstSpan input, LentSpan output, std::span<const std::size_t> input_counts,
                  std::span<const std::size_t> output_counts,
                  const OperationOptions& options) override;
  Work barrier(const OperationOptions& options) override;
  Work send(LentConstSpan data, Rank to, int tag, const OperationOptions& options) override;
  Work recv(LentSpan data, Rank from, int tag, const OperationOptions& options) override;
  Work recv_any(LentSpan data, int tag, const OperationOptions& options) override;
  Work coalesced(const std::function<void(Communicator&)>& post) override;

  std::vector<AlgorithmEstimate> explain(Collective collective, std::size_t bytes) override;
  std::string algorithm_for(Collective collective, std::size_t bytes) override;
  std::size_t bytes_sent() const override { return engine().traffic().total_bytes; }
  std::size_t payload_bytes_sent() const override { return engine().traffic().payload_bytes; }
  void abort(const std::string& reason) override;
  void abort_with(Rank peer, const std::string& reason) override;
  void leave_at_once(const std::string& failure) override;

 protected:
  void open_lanes(int first, int count) override { engine().open_lanes(group_, first, count); }

 private:
  class Batch;

  engine::Engine& engine() const { return *shared_->engine(); }
  std::shared_ptr<engine::PostedWork> new_state() const;
  std::uint16_t agree_on_group(Rank self, const std::shared_ptr<Planner>& members) const;
  engine::OperationRequest make(const schedule::CollectiveSpec& spec, std::size_t count,
                                DataType type, ReduceOp op, const OperationOptions& options) const;
  engine::OperationRequest make_unplanned(std::size_t count, DataType type, int tag,
                                          const OperationOptions& options) const;
  Work post(engine::OperationRequest request, std::shared_ptr<engine::PostedWork> state);
  Work post_in_place(engine::OperationRequest request, const LentSpan& data,
                     const OperationOptions& options);
  Work post_with(engine::OperationRequest request, const LentConstSpan& input,
                 const LentSpan& output);

  Rank rank_;
  CommunicatorOptions options_;
  std::shared_ptr<Planner> planner_;
  std::shared_ptr<SharedEngine> shared_;
  std::uint16_t group_;
  Batch* batch_ = nullptr;  ///< Not null: operations are collected here.
};

}  // namespace gradwire
