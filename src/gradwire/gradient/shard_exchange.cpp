#include "gradwire/gradient/shard_exchange.h"

#include <cstring>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "gradwire/base/check.h"
#include "gradwire/base/error.h"

namespace gradwire {
namespace {

class CommunicatorShardExchange final : public ShardExchange {
 public:
  CommunicatorShardExchange(std::shared_ptr<Communicator> communicator, std::size_t units,
                            ShardExchangeOptions options)
      : communicator_(std::move(communicator)),
        options_(std::move(options)),
        first_lane_(communicator_->reserve_lanes(
            options_.gathers_in_any_order ? 1 + static_cast<int>(units) : 2)),
        reductions_(units),
        gathers_(units) {}

  void start_reduce(std::size_t index, LentSpan unit, LentSpan shard, int priority) override {
    check(index, unit.count, shard.count, reductions_, "reduction");
    if (communicator_->size() == 1) return copy(unit, shard);
    const std::size_t bytes = unit.count * size_of(unit.type);
    const Time begin = now();
    reductions_[index] = communicator_->reduce_scatter(std::move(unit), std::move(shard),
                                                       ReduceOp::mean, operation(priority, 0));
    record(reductions_[index], "reduce", index, begin, bytes);
  }

  void start_gather(std::size_t index, LentConstSpan shard, LentSpan unit, int priority) override {
    check(index, unit.count, shard.count, gathers_, "gather");
    if (communicator_->size() == 1) return copy(shard, unit);
    const std::size_t bytes = unit.count * size_of(unit.type);
    const Time begin = now();
    const int lane = options_.gathers_in_any_order ? 1 + static_cast<int>(index) : 1;
    gathers_[index] =
        communicator_->all_gather(std::move(shard), std::move(unit), operation(priority, lane));
    record(gathers_[index], "gather", index, begin, bytes);
  }

  bool reduced(std::size_t index) override { return over(reductions_, index); }
  bool gathered(std::size_t index) override { return over(gathers_, index); }
  void wait_reduce(std::size_t index) override { wait(reductions_, index, "reduce"); }
  void wait_gather(std::size_t index) override { wait(gathers_, index, "gather"); }

 private:
  using Works = std::vector<Work>;  ///< By unit; invalid: none in flight.

  static bool over(const Works& works, std::size_t index) {
    return !works.at(index).valid() || works[index].done();
  }

  void wait(Works& works, std::size_t index, const char* kind) {
    const Work work = std::exchange(works.at(index), Work());
    if (!work.valid()) return;
    if (options_.trace == nullptr || work.done()) return work.wait();
    const std::string name = fmt::format("wait for {} {}", kind, index);
    const TraceScope scope(options_.trace, TraceKind::wait, name);
    work.wait();
  }

  Time now() const { return options_.trace == nullptr ? Time() : options_.trace->now(); }

  void record(const Work& work, const char* kind, std::size_t index, Time begin,
              std::size_t bytes) const {
    if (options_.trace == nullptr) return;
    work.on_done([trace = options_.trace, name = fmt::format("{} {}", kind, index),
                  step = options_.trace->step(), begin, bytes](const Work&) {
      trace->record(TraceKind::communication, name, step, begin, trace->now(), bytes);
    });
  }

  static void copy(const LentConstSpan& from, const LentSpan& to) {
    if (from.data == to.data) return;
    std::memcpy(to.data, from.data, from.count * size_of(from.type));
  }

  OperationOptions operation(int priority, int lane) const {
    return {.priority = priority,
            .lane = first_lane_ + lane,
            .timeout = options_.timeout,
            .algorithm = options_.algorithm};
  }

  void check(std::size_t index, std::size_t unit, std::size_t shard, const Works& works,
             const char* kind) const {
    GRADWIRE_CHECK(!works.at(index).valid());
    check_shards(kind, index, unit, shard, static_cast<std::size_t>(communicator_->size()));
  }

  std::shared_ptr<Communicator> communicator_;
  ShardExchangeOptions options_;
  int first_lane_;  ///< Of reductions; the lanes of gathers follow.
  Works reductions_;
  Works gathers_;
};

}  // namespace

void check_shards(std::string_view what, std::size_t index, std::size_t unit, std::size_t shard,
                  std::size_t ranks) {
  if (unit == shard * ranks) return;
  throw Exception(ErrorKind::invalid_argument,
                  fmt::format("{} of unit {}: {} elements are not {} shards of {}", what, index,
                              unit, ranks, shard));
}

std::unique_ptr<ShardExchange> shard_exchange(std::shared_ptr<Communicator> communicator,
                                              std::size_t units,
                                              const ShardExchangeOptions& options) {
  return std::make_unique<CommunicatorShardExchange>(std::move(communicator), units, options);
}

}  // namespace gradwire
