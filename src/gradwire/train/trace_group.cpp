#include "gradwire/train/trace_group.h"

#include <cstring>
#include <utility>
#include <vector>

#include <torch/torch.h>

namespace gradwire {
namespace {

constexpr int kTag = (1 << 15) - 1;  // MPI guarantees no larger tags.

std::vector<torch::Tensor> message_of(std::size_t bytes) {
  return {torch::empty({static_cast<std::int64_t>(bytes)}, torch::kByte)};
}

class GroupPeers final : public TracePeers {
 public:
  explicit GroupPeers(ProcessGroup group) : group_(std::move(group)) {}

  Rank rank() const override { return group_->getRank(); }
  int size() const override { return group_->getSize(); }

  void send(ConstBytes bytes, Rank to) override {
    auto message = message_of(bytes.size());
    std::memcpy(message[0].data_ptr(), bytes.data(), bytes.size());
    group_->send(message, to, kTag)->wait();
  }

  void recv(Bytes bytes, Rank from) override {
    auto message = message_of(bytes.size());
    group_->recv(message, from, kTag)->wait();
    std::memcpy(bytes.data(), message[0].data_ptr(), bytes.size());
  }

 private:
  ProcessGroup group_;
};

}  // namespace

std::unique_ptr<TracePeers> group_trace_peers(ProcessGroup group) {
  return std::make_unique<GroupPeers>(std::move(group));
}

}  // namespace gradwire
