#include "gradwire/gradient/power_sgd_averager.h"

#include <utility>

#include <fmt/format.h>

#include "gradwire/base/random.h"
#include "gradwire/gradient/averager_state.h"
#include "gradwire/gradient/power_sgd_bucket.h"

namespace gradwire {
namespace {

class PowerSgdAverager final : public CodecAverager {
 public:
  PowerSgdAverager(std::shared_ptr<Communicator> communicator, std::vector<BucketShape> shapes,
                   std::size_t rank, const AveragerOptions& options)
      : CodecAverager(std::move(communicator), std::move(shapes), options), rank_(rank) {
    for (const BucketShape& shape : buckets()) low_rank_.emplace_back(shape, rank);
    reserve_lanes(low_rank_.size());
  }
  ~PowerSgdAverager() override { stop(); }

  std::vector<State> state() override {
    std::vector<State> all;
    for (PowerSgdBucket& bucket : low_rank_) bucket.add_state(all);
    all.push_back({"codec.step", {&step(), 1, DataType::int64, nullptr}});
    return all;
  }
  void load_state(const std::vector<SavedState>& saved) override {
    load_averager_state(state(), saved);
  }
  std::string describe() const override {
    return fmt::format("power_sgd: matrices are sent as two factors of {} column{}", rank_,
                       rank_ == 1 ? "" : "s");
  }

 protected:
  bool is_ready() const override { return step() >= options().warmup_steps; }
  std::size_t pieces_of(std::size_t bucket) const override {
    return low_rank_[bucket].has_matrices() ? 1 : 0;
  }
  void apply_residuals(std::size_t bucket, std::span<float> gradients) override {
    low_rank_[bucket].apply_residuals(gradients);
  }

  void begin_coded(std::size_t bucket) override {
    const std::uint64_t seed =
        Random(Random(options().seed + static_cast<std::uint64_t>(step())).next() + bucket).next();
    add_task(bucket, kFirst, [this, bucket, seed] {
      low_rank_[bucket].compute_p(coded(bucket).data, seed);
      add_task_after(average(bucket, low_rank_[bucket].p()), bucket, kSecond,
                     [this, bucket] { reduce_q(bucket); });
    });
  }

 private:
  Work average(std::size_t bucket, const LentSpan& factors) {
    return communicator().all_reduce(factors, ReduceOp::mean,
                                     operation(bucket, static_cast<int>(bucket)));
  }

  void reduce_q(std::size_t bucket) {
    low_rank_[bucket].compute_q();
    add_task_after(average(bucket, low_rank_[bucket].q()), bucket, kThird, [this, bucket] {
      low_rank_[bucket].decompress(coded(bucket).data);
      piece_done(bucket);
    });
  }

  std::size_t rank_;
  std::vector<PowerSgdBucket> low_rank_;
};

}  // namespace

std::unique_ptr<CodecAverager> power_sgd_averager(std::shared_ptr<Communicator> communicator,
                                                  std::vector<BucketShape> buckets,
                                                  std::size_t rank,
                                                  const AveragerOptions& options) {
  return std::make_unique<PowerSgdAverager>(std::move(communicator), std::move(buckets), rank,
                                            options);
}

}  // namespace gradwire
