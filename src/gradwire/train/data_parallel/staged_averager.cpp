#include "gradwire/train/data_parallel/staged_averager.h"

#include <utility>

#include "gradwire/torch/staged_sequence.h"
#include "gradwire/torch/tensor_span.h"

namespace gradwire {
namespace {

class StagedAverager final : public Averager {
 public:
  StagedAverager(Rank rank, std::unique_ptr<Averager> own, std::vector<torch::Tensor> flats)
      : rank_(rank),
        own_(std::move(own)),
        flats_(std::move(flats)),
        works_(flats_.size()),
        staged_(rank) {}

  void start(std::size_t bucket, LentSpan /*data*/, int priority) override {
    const torch::Tensor& flat = flats_.at(bucket);
    const auto begin = [this, bucket, priority](const TensorList& host, const TensorList&) {
      own_->start(bucket, lend(host.front(), {"all_reduce", "gradients", rank_}), priority);
      return [this, bucket] { own_->wait(bucket); };
    };
    works_[bucket] = staged_.run(c10d::OpType::ALLREDUCE, {flat}, {flat}, begin);
  }

  bool done(std::size_t bucket) override {
    return !works_.at(bucket) || works_[bucket]->isCompleted();
  }

  void wait(std::size_t bucket) override {
    const auto work = std::exchange(works_.at(bucket), nullptr);
    if (work) work->wait();
  }

  void end_step() override { own_->end_step(); }
  std::vector<State> state() override { return own_->state(); }
  void load_state(const std::vector<SavedState>& saved) override { own_->load_state(saved); }
  std::string describe() const override { return own_->describe(); }
  void on_finished(std::function<void(std::size_t bucket)> finished) override {
    own_->on_finished(std::move(finished));
  }

 private:
  Rank rank_;
  std::unique_ptr<Averager> own_;
  std::vector<torch::Tensor> flats_;
  std::vector<c10::intrusive_ptr<StagedWork>> works_;  ///< Per bucket; null: not in flight.
  /// Destroyed first: it uses the members above.
  StagedSequence staged_;
};

}  // namespace

std::unique_ptr<Averager> staged_averager(Rank rank, std::unique_ptr<Averager> own,
                                          std::vector<torch::Tensor> flats) {
  return std::make_unique<StagedAverager>(rank, std::move(own), std::move(flats));
}

}  // namespace gradwire
