#include "gradwire/comm/scheduled_communicator.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "gradwire/base/refuse.h"
#include "gradwire/comm/arguments.h"
#include "gradwire/comm/work_group.h"

namespace gradwire {
namespace {

/// Makes the operation write to a copy, which replaces the data once the operation has succeeded.
void work_on_copy(engine::OperationRequest& request, engine::PostedWork& state,
                  const LentSpan& data) {
  const std::size_t bytes = data.count * size_of(data.type);
  // C++20 has no way to leave this uninitialized.
  std::shared_ptr<std::byte[]> copy(new std::byte[bytes]);  // NOLINT
  if (request.input == nullptr && bytes > 0) std::memcpy(copy.get(), data.data, bytes);
  request.output = copy.get();
  state.before_success([copy, data, bytes] {
    if (bytes > 0) std::memcpy(data.data, copy.get(), bytes);
  });
}

/// The group in which ranks agree on the number of a new one.
constexpr std::uint16_t kAgreement = 0xFFFF;

}  // namespace

SharedEngine::~SharedEngine() {
  // If an exception unwinds the stack, the caller may not have posted operations that would
  // complete those in flight.
  const bool unwinds = std::uncaught_exceptions() > 0;
  engine_->close(unwinds ? engine::Engine::Close::at_once : engine::Engine::Close::completing,
                 unwinds ? "after an exception" : "");
}

void SharedEngine::reserve_groups(std::int64_t number) {
  std::int64_t next = next_group_;
  while (next <= number && !next_group_.compare_exchange_weak(next, number + 1)) {
  }
}

/// Operations to be started together.
class ScheduledCommunicator::Batch {
 public:
  Work add(engine::OperationRequest request, std::shared_ptr<engine::PostedWork> state) {
    requests_.push_back(std::move(request));
    works_.emplace_back(std::move(state));
    return works_.back();
  }
  std::vector<engine::OperationRequest> take_requests() { return std::move(requests_); }
  const std::vector<Work>& works() const { return works_; }

 private:
  std::vector<engine::OperationRequest> requests_;
  std::vector<Work> works_;
};

ScheduledCommunicator::ScheduledCommunicator(Rank rank, const CommunicatorOptions& options,
                                             std::shared_ptr<Planner> planner,
                                             std::shared_ptr<SharedEngine> engine,
                                             std::uint16_t group)
    : rank_(rank),
      options_(options),
      planner_(std::move(planner)),
      shared_(std::move(engine)),
      group_(group) {}

std::shared_ptr<Communicator> ScheduledCommunicator::subgroup(std::span<const Rank> ranks) {
  check_domain(options_.failure_domain, "a subgroup");
  const Rank self = check_subgroup(ranks, rank_, size());
  std::shared_ptr<Planner> planner = planner_->for_subgroup(self, ranks);
  const auto opened = engine().open_group(group_, ranks);
  const std::uint16_t group = opened ? *opened : agree_on_group(self, planner);
  return std::make_shared<ScheduledCommunicator>(self, options_, std::move(planner), shared_,
                                                 group);
}

/// Returns a number that none of the members uses for another group. Each proposes its lowest free
/// number to the first, which returns the highest proposal.
std::uint16_t ScheduledCommunicator::agree_on_group(Rank self,
                                                    const std::shared_ptr<Planner>& members) const {
  ScheduledCommunicator agreement(self, options_, members, shared_, kAgreement);
  std::int64_t number = shared_->next_group();
  const auto lend = [](std::int64_t& value) { return LentSpan{&value, 1, DataType::int64, {}}; };
  if (self == 0) {
    for (Rank rank = 1; rank < agreement.size(); ++rank) {
      std::int64_t proposal = 0;
      agreement.recv(lend(proposal), rank, 0, {}).wait();
      number = std::max(number, proposal);
    }
    for (Rank rank = 1; rank < agreement.size(); ++rank) {
      agreement.send(lend(number), rank, 0, {}).wait();
    }
  } else {
    agreement.send(lend(number), 0, 0, {}).wait();
    agreement.recv(lend(number), 0, 0, {}).wait();
  }
  if (number >= kAgreement) refuse("a job has at most {} subgroups", kAgreement - 1);
  shared_->reserve_groups(number);
  return static_cast<std::uint16_t>(number);
}

std::shared_ptr<engine::PostedWork> ScheduledCommunicator::new_state() const {
  return std::make_shared<engine::PostedWork>(shared_->engine());
}

Work ScheduledCommunicator::all_reduce(LentSpan data, ReduceOp op,
                                       const OperationOptions& options) {
  engine::OperationRequest request =
      make({.collective = Collective::all_reduce}, data.count, data.type, op, options);
  request.input = static_cast<const std::byte*>(data.data);
  return post_in_place(std::move(request), data, options);
}

Work ScheduledCommunicator::broadcast(LentSpan data, Rank root, const OperationOptions& options) {
  check_rank(root, size(), "root");
  engine::OperationRequest request = make({.collective = Collective::broadcast, .root = root},
                                          data.count, data.type, ReduceOp::sum, options);
  return post_in_place(std::move(request), data, options);
}

Work ScheduledCommunicator::reduce(LentSpan data, Rank root, ReduceOp op,
                                   const OperationOptions& options) {
  check_rank(root, size(), "root");
  engine::OperationRequest request =
      make({.collective = Collective::reduce, .root = root}, data.count, data.type, op, options);
  request.input = static_cast<const std::byte*>(data.data);
  if (rank_ == root) return post_in_place(std::move(request), data, options);
  request.input_survives = true;
  return post_with(std::move(request), data, {});
}

Work ScheduledCommunicator::all_gather(LentConstSpan input, LentSpan output,
                                       const OperationOptions& options) {
  check_parts("all_gather", size(), input.count, input.type, output.count, output.type);
  return post_with(make({.collective = Collective::all_gather}, output.count, output.type,
                        ReduceOp::sum, options),
                   input, output);
}

Work ScheduledCommunicator::reduce_scatter(LentConstSpan input, LentSpan output, ReduceOp op,
                                           const OperationOptions& options) {
  check_parts("reduce_scatter", size(), output.count, output.type, input.count, input.type);
  return post_with(
      make({.collective = Collective::reduce_scatter}, input.count, input.type, op, options), input,
      output);
}

Work ScheduledCommunicator::gather(LentConstSpan input, LentSpan output, Rank root,
                                   const OperationOptions& options) {
  check_rank(root, size(), "root");
  if (rank_ == root) {
    check_parts("gather", size(), input.count, input.type, output.count, output.type);
  } else {
    output = {};
  }
  return post_with(
      make({.collective = Collective::gather, .root = root},
           input.count * static_cast<std::size_t>(size()), input.type, ReduceOp::sum, options),
      input, output);
}

Work ScheduledCommunicator::scatter(LentConstSpan input, LentSpan output, Rank root,
                                    const OperationOptions& options) {
  check_rank(root, size(), "root");
  if (rank_ == root) {
    check_parts("scatter", size(), output.count, output.type, input.count, input.type);
  } else {
    input = {};
  }
  return post_with(
      make({.collective = Collective::scatter, .root = root},
           output.count * static_cast<std::size_t>(size()), output.type, ReduceOp::sum, options),
      input, output);
}

Work ScheduledCommunicator::all_to_all(LentConstSpan input, LentSpan output,
                                       const OperationOptions& options) {
  const auto ranks = static_cast<std::size_t>(size());
  check_same_type("all_to_all", input.type, output.type);
  check_parts("all_to_all", size(), output.count / ranks, output.type, input.count, input.type);
  return post_with(
      make({.collective = Collective::all_to_all}, input.count, input.type, ReduceOp::sum, options),
      input, output);
}

Work ScheduledCommunicator::all_to_all(LentConstSpan input, LentSpan output,
                                       std::span<const std::size_t> input_counts,
                                       std::span<const std::size_t> output_counts,
                                       const OperationOptions& options) {
  check_same_type("all_to_all", input.type, output.type);
  check_splits("input", size(), input_counts, input.count);
  check_splits("output", size(), output_counts, output.count);
  OperationOptions fixed = options;
  if (fixed.algorithm.empty()) fixed.algorithm = planner_->forced(Collective::all_to_all);
  // Ranks see different sizes, so their tuners might choose differently.
  if (fixed.algorithm.empty() && traits().has_algorithms) fixed.algorithm = "direct";
  engine::OperationRequest request =
      make({.collective = Collective::all_to_all}, 0, input.type, ReduceOp::sum, fixed);
  request.splits = std::make_shared<const schedule::Splits>(input_counts, output_counts);
  return post_with(std::move(request), input, output);
}

Work ScheduledCommunicator::barrier(const OperationOptions& options) {
  return post(make({.collective = Collective::barrier}, 0, DataType::uint8, ReduceOp::sum, options),
              new_state());
}

Work ScheduledCommunicator::send(LentConstSpan data, Rank to, int tag,
                                 const OperationOptions& options) {
  check_message(to, size(), tag);
  if (to == rank_) {
    engine::OperationRequest request = make_unplanned(data.count, data.type, tag, options);
    request.peer = rank_;
    request.sends_to_self = true;
    return post_with(std::move(request), data, {});
  }
  engine::OperationRequest request =
      make({Collective::point_to_point, rank_, to}, data.count, data.type, ReduceOp::sum, options);
  request.peer = to;
  request.tag = tag;
  return post_with(std::move(request), data, {});
}

Work ScheduledCommunicator::recv(LentSpan data, Rank from, int tag,
                                 const OperationOptions& options) {
  check_message(from, size(), tag);
  if (from == rank_) {
    engine::OperationRequest request = make_unplanned(data.count, data.type, tag, options);
    request.peer = rank_;
    return post_with(std::move(request), {}, data);
  }
  engine::OperationRequest request = make({Collective::point_to_point, from, rank_}, data.count,
                                          data.type, ReduceOp::sum, options);
  request.peer = from;
  request.tag = tag;
  return post_with(std::move(request), {}, data);
}

Work ScheduledCommunicator::recv_any(LentSpan data, int tag, const OperationOptions& options) {
  check_tag(tag);
  engine::OperationRequest request = make_unplanned(data.count, data.type, tag, options);
  const std::size_t bytes = data.count * size_of(data.type);
  request.program_from = [planner = planner_, self = rank_, bytes](Rank engine_rank) {
    const Rank from = planner->rank_of(engine_rank);
    return planner->plan({Collective::point_to_point, from, self}, bytes, {}).program;
  };
  return post_with(std::move(request), {}, data);
}

Work ScheduledCommunicator::coalesced(const std::function<void(Communicator&)>& post_all) {
  if (batch_ != nullptr) {  // Nested calls start with the outermost one.
    const std::size_t before = batch_->works().size();
    post_all(*this);
    return work_group(shared_->engine(), std::span(batch_->works()).subspan(before));
  }
  Batch batch;
  {
    ScheduledCommunicator collector(rank_, options_, planner_, shared_, group_);
    collector.batch_ = &batch;
    collector.share_lanes(*this);
    post_all(collector);
  }
  Work all = work_group(shared_->engine(), batch.works());
  engine().post(batch.take_requests());
  return all;
}

std::vector<AlgorithmEstimate> ScheduledCommunicator::explain(Collective collective,
                                                              std::size_t bytes) {
  // Root 0, and messages from rank 0 to rank 1.
  if (!traits().has_algorithms) return {};
  const Rank target = size() > 1 ? 1 : 0;
  return planner_->tuner().explain({.collective = collective, .target = target}, bytes);
}

std::string ScheduledCommunicator::algorithm_for(Collective collective, std::size_t bytes) {
  return planner_->plan({.collective = collective}, bytes, {}).algorithm;
}

void ScheduledCommunicator::abort(const std::string& reason) {
  engine().abort({ErrorKind::aborted, fmt::format("rank {} aborted the communicator: {}",
                                                  planner_->engine_rank(rank_), reason)});
}

void ScheduledCommunicator::abort_with(Rank peer, const std::string& reason) {
  if (options_.failure_domain != FailureDomain::pair || peer == rank_) {
    refuse(
        "abort_with: rank {} cannot be aborted alone; it requires FailureDomain::pair and "
        "another rank; use abort()",
        peer);
  }
  engine().abort_with(peer, {ErrorKind::aborted, reason});
}

void ScheduledCommunicator::leave_at_once(const std::string& failure) {
  engine().close(engine::Engine::Close::at_once, failure);
}

engine::OperationRequest ScheduledCommunicator::make(const schedule::CollectiveSpec& spec,
                                                     std::size_t count, DataType type, ReduceOp op,
                                                     const OperationOptions& options) const {
  check_lane(options.lane);
  check_reduction(type, op);
  if (spec.collective != Collective::point_to_point) {
    check_domain(options_.failure_domain, schedule::name_of(spec.collective));
  }
  const OperationPlan& plan = planner_->plan(spec, count * size_of(type), options.algorithm);
  engine::OperationRequest request;
  request.program = plan.program;
  request.group = group_;
  request.fingerprint = {.collective = spec.collective,
                         .type = type,
                         .op = op,
                         .root = spec.root,
                         .count = count,
                         .sent = options.layout,
                         .expected = options.layout};
  request.fingerprint.set_algorithm(plan.algorithm);
  request.priority = options.priority;
  request.lane = options.lane;
  request.waits_at_once = options.waits_at_once;
  request.segments = options.segments > 0 ? options.segments : plan.segments;
  request.timeout = options.timeout.value_or(options_.operation_timeout);
  // If each rank has a part, input and output are separate memory.
  request.input_survives = options.preserve_input || schedule::has_parts(spec.collective);
  return request;
}

/// A message that is received from this rank itself has no plan; its root is the sender.
engine::OperationRequest ScheduledCommunicator::make_unplanned(
    std::size_t count, DataType type, int tag, const OperationOptions& options) const {
  engine::OperationRequest request;
  request.fingerprint = {.collective = Collective::point_to_point,
                         .type = type,
                         .root = rank_,
                         .count = count,
                         .sent = options.layout,
                         .expected = options.layout};
  request.priority = options.priority;
  request.timeout = options.timeout.value_or(options_.operation_timeout);
  request.tag = tag;
  request.group = group_;
  return request;
}

Work ScheduledCommunicator::post(engine::OperationRequest request,
                                 std::shared_ptr<engine::PostedWork> state) {
  request.completion = state;
  if (batch_ != nullptr) return batch_->add(std::move(request), std::move(state));
  engine().post(std::move(request));
  return Work(std::move(state));
}

Work ScheduledCommunicator::post_in_place(engine::OperationRequest request, const LentSpan& data,
                                          const OperationOptions& options) {
  request.output = static_cast<std::byte*>(data.data);
  auto state = new_state();
  state->keep(data.keep_alive);
  if (options.preserve_input) work_on_copy(request, *state, data);
  return post(std::move(request), std::move(state));
}

Work ScheduledCommunicator::post_with(engine::OperationRequest request, const LentConstSpan& input,
                                      const LentSpan& output) {
  request.input = static_cast<const std::byte*>(input.data);
  request.output = static_cast<std::byte*>(output.data);
  auto state = new_state();
  state->keep(input.keep_alive);
  state->keep(output.keep_alive);
  return post(std::move(request), std::move(state));
}

}  // namespace gradwire
