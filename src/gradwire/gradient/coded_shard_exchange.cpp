#include "gradwire/gradient/coded_shard_exchange.h"

#include <cstring>
#include <utility>

#include "gradwire/gradient/trace_averager.h"

namespace gradwire {
namespace {

class CodedShardExchange final : public ShardExchange {
 public:
  CodedShardExchange(std::shared_ptr<Communicator> communicator,
                     const std::vector<BucketShape>& units, AveragerOptions codec,
                     const ShardExchangeOptions& options)
      : rank_(communicator->rank()),
        ranks_(static_cast<std::size_t>(communicator->size())),
        plain_(shard_exchange(communicator, units.size(), options)),
        averager_(traced(std::move(communicator), units, std::move(codec), options)),
        reductions_(units.size()) {}

  void start_reduce(std::size_t index, LentSpan unit, LentSpan shard, int priority) override {
    check_shards("reduction", index, unit.count, shard.count, ranks_);
    reductions_.at(index) = {unit, shard};
    averager_->start(index, std::move(unit), priority);
    started_ = true;
  }

  void start_gather(std::size_t index, LentConstSpan shard, LentSpan unit, int priority) override {
    plain_->start_gather(index, std::move(shard), std::move(unit), priority);
  }

  bool reduced(std::size_t index) override {
    return reductions_.at(index).shard.data == nullptr || averager_->done(index);
  }
  bool gathered(std::size_t index) override { return plain_->gathered(index); }

  void wait_reduce(std::size_t index) override {
    const Reduction over = std::exchange(reductions_.at(index), {});
    if (over.shard.data == nullptr) return;
    averager_->wait(index);
    const std::size_t bytes = over.shard.count * size_of(over.shard.type);
    const auto* own =
        static_cast<const std::byte*>(over.unit.data) + static_cast<std::size_t>(rank_) * bytes;
    if (own != over.shard.data) std::memcpy(over.shard.data, own, bytes);
  }
  void wait_gather(std::size_t index) override { plain_->wait_gather(index); }

  void end_pass() override {
    if (std::exchange(started_, false)) averager_->end_step();
  }
  Averager* feedback() override { return averager_.get(); }

 private:
  struct Reduction {
    LentSpan unit;
    LentSpan shard;
  };

  static std::unique_ptr<Averager> traced(std::shared_ptr<Communicator> communicator,
                                          const std::vector<BucketShape>& units,
                                          AveragerOptions codec,
                                          const ShardExchangeOptions& options) {
    codec.timeout = options.timeout;
    codec.reduce_scatter_only = true;
    return trace_averager(make_averager(std::move(communicator), units, codec), options.trace);
  }

  Rank rank_;
  std::size_t ranks_;
  std::unique_ptr<ShardExchange> plain_;  ///< For gathers.
  std::unique_ptr<Averager> averager_;
  std::vector<Reduction> reductions_;  ///< By unit; empty memory: none in flight.
  bool started_ = false;               ///< Since the last end_pass().
};

}  // namespace

std::unique_ptr<ShardExchange> coded_shard_exchange(std::shared_ptr<Communicator> communicator,
                                                    const std::vector<BucketShape>& units,
                                                    const AveragerOptions& codec,
                                                    const ShardExchangeOptions& options) {
  if (codec.codec == "none") return shard_exchange(std::move(communicator), units.size(), options);
  return std::make_unique<CodedShardExchange>(std::move(communicator), units, codec, options);
}

}  // namespace gradwire
