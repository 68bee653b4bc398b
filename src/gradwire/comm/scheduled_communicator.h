#pragma once

#include <memory>
#include <string>

#include "gradwire/comm/communicator.h"
#include "gradwire/comm/planner.h"
#include "gradwire/engine/operation.h"
#include "gradwire/engine/work_state.h"

namespace gradwire {

/// Implementation of Communicator: checks arguments, gets a plan for each operation from the
/// planner, and posts it to an engine.
class ScheduledCommunicator final : public Communicator {
 public:
  /// The destructor closes `engine`; Works keep it alive.
  ScheduledCommunicator(Rank rank, const CommunicatorOptions& options,
                        std::shared_ptr<Planner> planner, std::shared_ptr<engine::Engine> engine);
  ~ScheduledCommunicator() override;

  /// Plans later operations with `planner`. Not thread-safe.
  void go_by(std::shared_ptr<Planner> planner) { planner_ = std::move(planner); }

  Rank rank() const override { return rank_; }
  int size() const override { return planner_->topology().ranks(); }

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
  std::size_t bytes_sent() const override { return engine_->traffic().total_bytes; }
  std::size_t payload_bytes_sent() const override { return engine_->traffic().payload_bytes; }
  void abort(const std::string& reason) override;
  void leave_at_once() override;

 private:
  class Batch;

  engine::OperationRequest make(const schedule::CollectiveSpec& spec, std::size_t count,
                                DataType type, ReduceOp op, const OperationOptions& options) const;
  Work post(engine::OperationRequest request, std::shared_ptr<engine::WorkState> state);
  Work post_in_place(engine::OperationRequest request, const LentSpan& data,
                     const OperationOptions& options);
  Work post_with(engine::OperationRequest request, const LentConstSpan& input,
                 const LentSpan& output);

  Rank rank_;
  CommunicatorOptions options_;
  std::shared_ptr<Planner> planner_;
  std::shared_ptr<engine::Engine> engine_;
  Batch* batch_ = nullptr;  ///< Not null: operations are collected here.
};

}  // namespace gradwire
