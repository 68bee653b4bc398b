#include "gradwire/comm/communicator.h"

#include <cstring>
#include <map>
#include <mutex>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "gradwire/base/check.h"
#include "gradwire/base/clock.h"
#include "gradwire/comm/progress.h"
#include "gradwire/comm/rendezvous.h"
#include "gradwire/comm/solo_engine.h"
#include "gradwire/comm/tuner.h"
#include "gradwire/schedule/catalogue.h"
#include "gradwire/topology/topology.h"

namespace gradwire {
namespace {

constexpr int kMaxTag = (1 << 30) - 1;

const Clock& steady_clock_instance() {
  static const SteadyClock clock;
  return clock;
}

ExecutorOptions executor_options(const CommunicatorOptions& options) {
  ExecutorOptions made;
  made.limits.segment_bytes = options.segment_bytes;
  made.limits.eager_bytes = options.eager_bytes;
  made.dead_peer_timeout = options.dead_peer_timeout;
  return made;
}

/// Compiled programs by what they do, so that an operation costs no planning the second time.
class ProgramCache {
 public:
  ProgramCache(Rank rank, Topology topology) : rank_(rank), topology_(std::move(topology)) {}

  std::shared_ptr<const CompiledProgram> get(const CollectiveSpec& spec, const std::string& name) {
    const std::lock_guard lock(mutex_);
    auto& entry = programs_[{spec.collective, spec.root, spec.target, name}];
    if (!entry)
      entry = CompiledProgram::compile(value_or_throw(make_schedule(spec, name, topology_)), rank_);
    return entry;
  }

 private:
  Rank rank_;
  Topology topology_;
  std::mutex mutex_;
  std::map<std::tuple<Collective, Rank, Rank, std::string>, std::shared_ptr<const CompiledProgram>>
      programs_;
};

class ScheduledCommunicator final : public Communicator {
 public:
  ScheduledCommunicator(Rank rank, int size, const CommunicatorOptions& options,
                        std::shared_ptr<Engine> engine)
      : rank_(rank),
        size_(size),
        options_(options),
        engine_(std::move(engine)),
        programs_(rank, Tuner::assumed(size)),
        tuner_(Tuner::assumed(size), options.segment_bytes) {}

  /// Works hold on to the engine, so it is told that it is over.
  ~ScheduledCommunicator() override { engine_->close(); }

  Rank rank() const override { return rank_; }
  int size() const override { return size_; }

  Work all_reduce(LentSpan data, ReduceOp op, const OperationOptions& options) override {
    OperationRequest request =
        make({.collective = Collective::all_reduce}, data.count, data.type, op, options);
    request.input = static_cast<const std::byte*>(data.data);
    request.output = static_cast<std::byte*>(data.data);
    auto state = new_work();
    state->keep(data.keep_alive);
    if (options.preserve_input) work_on_copy(request, *state, data);
    return post(std::move(request), std::move(state));
  }

  Work broadcast(LentSpan data, Rank root, const OperationOptions& options) override {
    check_rank(root, "root");
    OperationRequest request = make({.collective = Collective::broadcast, .root = root}, data.count,
                                    data.type, ReduceOp::sum, options);
    request.output = static_cast<std::byte*>(data.data);
    auto state = new_work();
    state->keep(data.keep_alive);
    if (options.preserve_input) work_on_copy(request, *state, data);
    return post(std::move(request), std::move(state));
  }

  Work all_gather(LentConstSpan input, LentSpan output, const OperationOptions& options) override {
    check_parts("all_gather", input.count, output.count, input.type, output.type);
    OperationRequest request = make({.collective = Collective::all_gather}, output.count,
                                    output.type, ReduceOp::sum, options);
    return post_with(std::move(request), input, output);
  }

  Work reduce_scatter(LentConstSpan input, LentSpan output, ReduceOp op,
                      const OperationOptions& options) override {
    check_parts("reduce_scatter", output.count, input.count, output.type, input.type);
    OperationRequest request =
        make({.collective = Collective::reduce_scatter}, input.count, input.type, op, options);
    return post_with(std::move(request), input, output);
  }

  Work barrier(const OperationOptions& options) override {
    OperationRequest request =
        make({.collective = Collective::barrier}, 0, DataType::uint8, ReduceOp::sum, options);
    return post(std::move(request), new_work());
  }

  Work send(LentConstSpan data, Rank to, int tag, const OperationOptions& options) override {
    check_pair(to, tag);
    OperationRequest request = make({Collective::point_to_point, rank_, to}, data.count, data.type,
                                    ReduceOp::sum, options);
    request.tag = tag;
    return post_with(std::move(request), data, {});
  }

  Work recv(LentSpan data, Rank from, int tag, const OperationOptions& options) override {
    check_pair(from, tag);
    OperationRequest request = make({Collective::point_to_point, from, rank_}, data.count,
                                    data.type, ReduceOp::sum, options);
    request.tag = tag;
    return post_with(std::move(request), {}, data);
  }

  std::size_t bytes_sent() const override { return engine_->traffic().total_bytes; }
  std::size_t payload_bytes_sent() const override { return engine_->traffic().payload_bytes; }

  void abort(const std::string& reason) override {
    engine_->abort({ErrorKind::aborted, fmt::format("rank {} ended it: {}", rank_, reason)});
  }

 private:
  OperationRequest make(const CollectiveSpec& spec, std::size_t count, DataType type, ReduceOp op,
                        const OperationOptions& options) {
    const std::string algorithm = options.algorithm.empty()
                                      ? tuner_.choose(spec.collective, count * size_of(type))
                                      : options.algorithm;
    OperationRequest request;
    request.program = programs_.get(spec, algorithm);
    request.fingerprint = {
        .collective = spec.collective, .type = type, .op = op, .root = spec.root, .count = count};
    request.fingerprint.set_algorithm(algorithm);
    request.urgency = options.urgency;
    request.timeout = options.timeout.value_or(options_.operation_timeout);
    request.input_survives = options.preserve_input || spec.collective == Collective::all_gather ||
                             spec.collective == Collective::reduce_scatter;
    return request;
  }

  std::shared_ptr<WorkState> new_work() { return std::make_shared<WorkState>(engine_); }

  Work post(OperationRequest request, std::shared_ptr<WorkState> state) {
    request.completion = state;
    engine_->post(std::move(request));
    return Work(std::move(state));
  }

  Work post_with(OperationRequest request, const LentConstSpan& input, const LentSpan& output) {
    request.input = static_cast<const std::byte*>(input.data);
    request.output = static_cast<std::byte*>(output.data);
    auto state = new_work();
    state->keep(input.keep_alive);
    state->keep(output.keep_alive);
    return post(std::move(request), std::move(state));
  }

  /// Lets the operation write to memory of its own, copied over the data once it has succeeded.
  static void work_on_copy(OperationRequest& request, WorkState& state, const LentSpan& data) {
    const std::size_t bytes = data.count * size_of(data.type);
    std::shared_ptr<std::byte[]> copy(
        new std::byte[bytes]);  // NOLINT: C++20 has no uninitialised one.
    if (request.input == nullptr && bytes > 0) std::memcpy(copy.get(), data.data, bytes);
    request.output = copy.get();
    state.before_success([copy, data, bytes] {
      if (bytes > 0) std::memcpy(data.data, copy.get(), bytes);
    });
  }

  void check_rank(Rank rank, const char* what) const {
    if (rank >= 0 && rank < size_) return;
    throw Exception(
        ErrorKind::invalid_argument,
        fmt::format("{} {} is not a rank of this job (0 to {})", what, rank, size_ - 1));
  }

  void check_pair(Rank peer, int tag) const {
    check_rank(peer, "peer");
    if (peer == rank_) {
      throw Exception(ErrorKind::invalid_argument,
                      fmt::format("rank {} cannot send a message to itself", rank_));
    }
    if (tag < 0 || tag > kMaxTag) {
      throw Exception(ErrorKind::invalid_argument,
                      fmt::format("tag {} is not within 0 to {}", tag, kMaxTag));
    }
  }

  void check_parts(const char* what, std::size_t part, std::size_t whole, DataType part_type,
                   DataType whole_type) const {
    if (part_type == whole_type && whole == part * static_cast<std::size_t>(size_)) return;
    throw Exception(
        ErrorKind::invalid_argument,
        fmt::format("{} over {} ranks needs one side {} times as large as the other, of the "
                    "same type; got {} {} and {} {}",
                    what, size_, size_, part, name_of(part_type), whole, name_of(whole_type)));
  }

  Rank rank_;
  int size_;
  CommunicatorOptions options_;
  std::shared_ptr<Engine> engine_;
  ProgramCache programs_;
  Tuner tuner_;
};

}  // namespace

std::shared_ptr<Communicator> Communicator::connect(const Job& job,
                                                    const CommunicatorOptions& options,
                                                    std::shared_ptr<Store> store) {
  const Clock& clock = steady_clock_instance();
  std::shared_ptr<Engine> engine;
  if (job.world_size == 1) {
    engine = std::make_shared<SoloEngine>(executor_options(options), clock);
  } else {
    Mesh mesh = value_or_throw(connect_mesh(
        job,
        {.timeout = options.rendezvous_timeout, .dead_peer_timeout = options.dead_peer_timeout},
        store.get()));
    engine = std::make_shared<Progress>(std::move(mesh.transport), job.rank, job.world_size,
                                        executor_options(options), clock);
  }
  return std::make_shared<ScheduledCommunicator>(job.rank, job.world_size, options,
                                                 std::move(engine));
}

}  // namespace gradwire
