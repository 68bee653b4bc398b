#include "gradwire/data/fashion_mnist.h"

#include <cstring>
#include <string>

#include <fmt/format.h>

#include "gradwire/base/refuse.h"
#include "gradwire/data/idx.h"

namespace gradwire {
namespace {

constexpr const char* kDebianFolder = "/usr/share/datasets/fashion-mnist";
constexpr int kClasses = 10;

// Mean and standard deviation of the 60,000 training images' pixels, scaled to 0 .. 1.
constexpr double kMean = 0.2860;
constexpr double kDeviation = 0.3530;

std::filesystem::path find_file(const std::filesystem::path& folder, const std::string& name) {
  for (const auto& candidate : {folder / name, folder / (name + ".gz")}) {
    if (std::filesystem::exists(candidate)) return candidate;
  }
  refuse(
      "no {}[.gz] in {}: install Debian's package dataset-fashion-mnist, or "
      "give the folder that holds the data set (--data PATH, \"data\": "
      "{{\"path\": ...}})",
      name, folder.string());
}

torch::Tensor to_tensor(const IdxArray& array) {
  auto tensor = torch::empty(array.shape, torch::kUInt8);
  if (!array.values.empty()) {
    std::memcpy(tensor.data_ptr(), array.values.data(), array.values.size());
  }
  return tensor;
}

void check(const ImageData& data, const std::filesystem::path& folder) {
  const auto fail = [&](const std::string& reason) { refuse("{}: {}", folder.string(), reason); };
  if (data.images.dim() != 3 || data.images.size(1) != 28 || data.images.size(2) != 28) {
    fail("the images are not N x 28 x 28");
  }
  if (data.labels.dim() != 1 || data.labels.size(0) != data.images.size(0)) {
    fail(fmt::format("{} labels for {} images", data.labels.numel(), data.images.size(0)));
  }
  if (data.size() == 0) fail("the data set is empty");
  if (data.labels.max().item<int>() >= kClasses) fail("a label is outside 0 .. 9");
}

}  // namespace

ImageData load_fashion_mnist(Split split, const std::filesystem::path& path) {
  const std::filesystem::path folder = path.empty() ? kDebianFolder : path;
  const std::string prefix = split == Split::train ? "train" : "t10k";
  ImageData data{.images = to_tensor(read_idx(find_file(folder, prefix + "-images-idx3-ubyte"))),
                 .labels = to_tensor(read_idx(find_file(folder, prefix + "-labels-idx1-ubyte")))};
  check(data, folder);
  return {.images = data.images.unsqueeze(1), .labels = data.labels.to(torch::kInt64)};
}

Batch ImageData::batch(const SampledBatch& sampled) const {
  const torch::NoGradGuard no_grad;
  const auto index = torch::tensor(sampled.samples, torch::kInt64);
  auto inputs = images.index_select(0, index).to(torch::kFloat32);
  inputs.div_(255.0).sub_(kMean).div_(kDeviation);
  return {.inputs = inputs, .targets = labels.index_select(0, index), .own = sampled.own};
}

}  // namespace gradwire
