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
        reductions_(units),
        gathers_(units) {}

  void start_reduce(std::size_t index, LentConstSpan unit, LentSpan shard, int urgency) override {
    check(index, unit.count, shard.count, reductions_, "reduction");
    if (communicator_->size() == 1) return copy(unit, shard);
    reductions_[index] = communicator_->reduce_scatter(std::move(unit), std::move(shard),
                                                       ReduceOp::mean, operation(urgency, 0));
  }

  void start_gather(std::size_t index, LentConstSpan shard, LentSpan unit, int urgency) override {
    check(index, unit.count, shard.count, gathers_, "gather");
    if (communicator_->size() == 1) return copy(shard, unit);
    gathers_[index] =
        communicator_->all_gather(std::move(shard), std::move(unit), operation(urgency, 1));
  }

  bool reduced(std::size_t index) override { return over(reductions_, index); }
  bool gathered(std::size_t index) override { return over(gathers_, index); }
  void wait_reduce(std::size_t index) override { wait(reductions_, index); }
  void wait_gather(std::size_t index) override { wait(gathers_, index); }

 private:
  using Works = std::vector<Work>;  ///< By unit; not valid: nothing under way.

  static bool over(const Works& works, std::size_t index) {
    return !works.at(index).valid() || works[index].done();
  }

  static void wait(Works& works, std::size_t index) {
    const Work work = std::exchange(works.at(index), Work());
    if (work.valid()) work.wait();
  }

  static void copy(const LentConstSpan& from, const LentSpan& to) {
    if (from.data == to.data) return;
    std::memcpy(to.data, from.data, from.count * size_of(from.type));
  }

  OperationOptions operation(int urgency, int lane) const {
    return {.urgency = urgency,
            .lane = options_.first_lane + lane,
            .timeout = options_.timeout,
            .algorithm = options_.algorithm};
  }

  void check(std::size_t index, std::size_t unit, std::size_t shard, const Works& works,
             const char* kind) const {
    GRADWIRE_CHECK(!works.at(index).valid());
    const auto ranks = static_cast<std::size_t>(communicator_->size());
    if (unit == shard * ranks) return;
    throw Exception(ErrorKind::invalid_argument,
                    fmt::format("{} of unit {}: {} elements are not {} shards of {}", kind, index,
                                unit, ranks, shard));
  }

  std::shared_ptr<Communicator> communicator_;
  ShardExchangeOptions options_;
  Works reductions_;
  Works gathers_;
};

}  // namespace

std::unique_ptr<ShardExchange> shard_exchange(std::shared_ptr<Communicator> communicator,
                                              std::size_t units,
                                              const ShardExchangeOptions& options) {
  return std::make_unique<CommunicatorShardExchange>(std::move(communicator), units, options);
}

}  // namespace gradwire
