#include "gradwire/train/data_parallel/group_averager.h"

#include <algorithm>
#include <utility>

#include "gradwire/torch/process_group.h"
#include "gradwire/train/data_parallel/staged_averager.h"

namespace gradwire {
namespace {

class GroupAverager final : public Averager {
 public:
  GroupAverager(ProcessGroup group, std::vector<torch::Tensor> flats)
      : group_(std::move(group)), flats_(std::move(flats)), works_(flats_.size()) {
    average_ = std::ranges::all_of(
        flats_, [this](const auto& flat) { return can_average(*group_, flat.device().type()); });
  }

  void start(std::size_t bucket, LentSpan /*data*/, int /*priority*/) override {
    c10d::AllreduceOptions options;
    options.reduceOp = average_ ? c10d::ReduceOp::AVG : c10d::ReduceOp::SUM;
    std::vector<torch::Tensor> tensors{flats_.at(bucket)};
    works_[bucket] = group_->allreduce(tensors, options);
  }

  bool done(std::size_t bucket) override {
    return !works_.at(bucket) || works_[bucket]->isCompleted();
  }

  void wait(std::size_t bucket) override {
    const auto work = std::exchange(works_.at(bucket), nullptr);
    if (work) work->wait();
  }

  void end_step() override {}
  std::vector<State> state() override { return {}; }
  void load_state(const std::vector<SavedState>& /*saved*/) override {}
  std::string describe() const override { return "gradients are sent uncompressed"; }

 private:
  ProcessGroup group_;
  std::vector<torch::Tensor> flats_;
  bool average_ = false;
  std::vector<c10::intrusive_ptr<c10d::Work>> works_;
};

}  // namespace

std::unique_ptr<Averager> group_averager(ProcessGroup group, std::vector<torch::Tensor> flats) {
  return std::make_unique<GroupAverager>(std::move(group), std::move(flats));
}

std::unique_ptr<Averager> averager_for(std::string_view who, const ProcessGroup& group,
                                       const std::vector<torch::Tensor>& flats,
                                       std::vector<BucketShape> shapes,
                                       const AveragerOptions& options) {
  if (auto communicator = communicator_of(*group)) {
    const Rank rank = communicator->rank();
    auto own = make_averager(std::move(communicator), std::move(shapes), options);
    return one_device_type(who, flats) == c10::DeviceType::CPU
               ? std::move(own)
               : staged_averager(rank, std::move(own), flats);
  }
  refuse_codec_without_communicator(who, options.codec);
  return group_averager(group, flats);
}

LentSpan lent_bucket(c10d::ProcessGroup& group, const torch::Tensor& flat,
                     const ArgumentName& name) {
  if (!communicator_of(group) || !flat.is_cpu())
    return {.count = flat.nbytes(), .type = DataType::uint8};
  return lend(flat, name);
}

}  // namespace gradwire
