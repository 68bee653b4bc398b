#include "gradwire/host/group.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <torch/torch.h>

#include "gradwire/base/bytes.h"
#include "gradwire/base/error.h"
#include "gradwire/base/tags.h"
#include "gradwire/host/wait_meter.h"
#include "gradwire/torch/process_group.h"
#include "gradwire/torch/releases.h"

namespace gradwire {
namespace {

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
    group_->send(message, to, kGroupTraceTag)->wait();
  }

  void recv(Bytes bytes, Rank from) override {
    auto message = message_of(bytes.size());
    group_->recv(message, from, kGroupTraceTag)->wait();
    std::memcpy(bytes.data(), message[0].data_ptr(), bytes.size());
  }

 private:
  ProcessGroup group_;
};

}  // namespace

ProcessGroup group_of_one() {
  return make_process_group(Communicator::connect({.rank = 0, .world_size = 1}));
}

std::unique_ptr<TracePeers> group_trace_peers(ProcessGroup group) {
  return std::make_unique<GroupPeers>(std::move(group));
}

namespace {

/// Returns a dense tensor's memory as bytes, copied if it is not contiguous.
torch::Tensor bytes_of(const torch::Tensor& tensor) {
  return tensor.detach().contiguous().view(-1).view(torch::kByte);
}

void broadcast_as_one(c10d::ProcessGroup& group, const std::vector<torch::Tensor>& tensors,
                      int root) {
  std::vector<torch::Tensor> pieces;
  for (const auto& tensor : tensors) pieces.push_back(bytes_of(tensor));
  std::vector<torch::Tensor> message{torch::cat(pieces)};
  c10d::BroadcastOptions options;
  options.rootRank = root;
  wait_measured(*group.broadcast(message, options), "wait for buffers");
  if (group.getRank() == root) return;
  std::int64_t offset = 0;
  for (const auto& tensor : tensors) {
    const auto bytes = static_cast<std::int64_t>(tensor.nbytes());
    const auto piece = message[0].narrow(0, offset, bytes);
    // clone: a slice of bytes may be misaligned for the wider type.
    tensor.detach().copy_(piece.clone().view(tensor.scalar_type()).view(tensor.sizes()));
    offset += bytes;
  }
}

/// Strategies exchange texts and sums besides tensors, and those are in host memory.
void check_host_backend(c10d::ProcessGroup& group) {
  if (has_backend(group, c10::DeviceType::CPU)) return;
  throw Exception(ErrorKind::unsupported,
                  "the process group has no backend for tensors in host memory: make it with one, "
                  "such as \"cpu:gloo,cuda:nccl\"");
}

torch::Tensor gather_rows(c10d::ProcessGroup& group, torch::Tensor row) {
  check_host_backend(group);
  std::vector<std::vector<torch::Tensor>> rows(1);
  for (int r = 0; r < group.getSize(); ++r) rows[0].push_back(torch::empty_like(row));
  std::vector<torch::Tensor> input{std::move(row)};
  wait_measured(*group.allgather(rows, input), "wait for texts");
  return torch::stack(rows[0]);
}

}  // namespace

void broadcast_tensors(c10d::ProcessGroup& group, const std::vector<NamedTensor>& tensors, int root,
                       std::size_t message_bytes) {
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> message;
  std::size_t bytes = 0;
  const auto flush = [&] {
    if (bytes > 0) broadcast_as_one(group, message, root);
    message.clear();
    bytes = 0;
  };
  for (const auto& [name, tensor] : tensors) {
    if (bytes + tensor.nbytes() > message_bytes) flush();
    if (!message.empty() && message.back().device() != tensor.device()) flush();
    if (tensor.nbytes() == 0) continue;
    message.push_back(tensor);
    bytes += tensor.nbytes();
  }
  flush();
}

void refuse_codec_without_communicator(std::string_view who, const std::string& codec) {
  if (codec == "none") return;
  throw Exception(ErrorKind::unsupported,
                  fmt::format("{}: codec \"{}\" requires a process group of backend gradwire (in "
                              "C++ that of gradwire::init()): use one, or codec \"none\"",
                              who, codec));
}

std::vector<std::string> gather_texts(c10d::ProcessGroup& group, const std::string& text) {
  const auto length = static_cast<std::int64_t>(text.size());
  const auto lengths = gather_rows(group, torch::full({1}, length, torch::kInt64));
  const auto longest = std::max<std::int64_t>(1, lengths.max().item<std::int64_t>());
  auto row = torch::zeros({longest}, torch::kByte);
  std::copy(text.begin(), text.end(), row.data_ptr<std::uint8_t>());
  const auto rows = gather_rows(group, row);
  std::vector<std::string> texts;
  for (int r = 0; r < group.getSize(); ++r) {
    const auto* begin = rows[r].data_ptr<std::uint8_t>();
    texts.emplace_back(begin, begin + lengths[r].item<std::int64_t>());
  }
  return texts;
}

std::vector<double> sum_over_ranks(c10d::ProcessGroup& group, std::vector<double> values) {
  if (group.getSize() == 1 || values.empty()) return values;
  check_host_backend(group);
  std::vector<torch::Tensor> tensors{torch::tensor(values, torch::kFloat64)};
  wait_measured(*group.allreduce(tensors), "wait for sums");
  const auto* sums = tensors[0].data_ptr<double>();
  return {sums, sums + values.size()};
}

c10::DeviceType one_device_type(std::string_view who, const std::vector<torch::Tensor>& tensors) {
  if (tensors.empty()) return c10::DeviceType::CPU;
  const auto device = tensors.front().device();
  for (const auto& tensor : tensors) {
    if (tensor.device().type() == device.type()) continue;
    throw Exception(
        ErrorKind::unsupported,
        fmt::format("{}: parameters are on {} and on {}; move the module to one device type", who,
                    device.str(), tensor.device().str()));
  }
  return device.type();
}

bool can_average(c10d::ProcessGroup& group, c10::DeviceType device) {
  if (!has_backend(group, device)) return false;
  const auto name = group.getBackend(device)->getBackendName();
  return name == "gradwire" || name == "nccl";
}

void abort_group(c10d::ProcessGroup& group, const std::string& reason) noexcept {
  try {
    if (const auto communicator = communicator_of(group)) {
      communicator->abort(reason);
    } else {
      group.abort();
    }
  } catch (...) {
    // Report the error that led here, not this one.
  }
}

}  // namespace gradwire
