#include "gradwire/gradient/dense_averager.h"

#include <functional>
#include <utility>

#include "gradwire/gradient/averager_arguments.h"

namespace gradwire {
namespace {

class DenseAverager final : public Averager {
 public:
  DenseAverager(std::shared_ptr<Communicator> communicator, std::vector<BucketShape> buckets,
                std::optional<Duration> timeout)
      : communicator_(std::move(communicator)),
        buckets_(std::move(buckets)),
        operation_{.lane = communicator_->reserve_lanes(1), .timeout = timeout},
        works_(buckets_.size()) {}

  void start(std::size_t bucket, LentSpan data, int priority) override {
    check_start(buckets_, bucket, data);
    check_idle(bucket, works_[bucket].valid());
    if (communicator_->size() == 1) return;
    operation_.priority = priority;
    works_[bucket] = communicator_->all_reduce(std::move(data), ReduceOp::mean, operation_);
    if (!finished_) return;
    works_[bucket].on_done([finished = finished_, bucket](const Work&) { finished(bucket); });
  }

  bool done(std::size_t bucket) override {
    return !works_.at(bucket).valid() || works_[bucket].done();
  }

  void wait(std::size_t bucket) override {
    const Work work = std::exchange(works_.at(bucket), Work());
    if (work.valid()) work.wait();
  }

  void end_step() override {}
  std::vector<State> state() override { return {}; }
  void load_state(const std::vector<SavedState>& /*saved*/) override {}

  void on_finished(std::function<void(std::size_t bucket)> finished) override {
    finished_ = std::move(finished);
  }

  std::string describe() const override {
    if (communicator_->size() == 1) return "one rank: no communication";
    return "gradients are sent uncompressed";
  }

 private:
  std::shared_ptr<Communicator> communicator_;
  std::vector<BucketShape> buckets_;
  OperationOptions operation_;
  std::vector<Work> works_;  ///< Per bucket; invalid: none in flight.
  std::function<void(std::size_t bucket)> finished_;
};

}  // namespace

std::unique_ptr<Averager> dense_averager(std::shared_ptr<Communicator> communicator,
                                         std::vector<BucketShape> buckets,
                                         std::optional<Duration> timeout) {
  return std::make_unique<DenseAverager>(std::move(communicator), std::move(buckets), timeout);
}

}  // namespace gradwire
