#pragma once

#include <filesystem>

#include <torch/torch.h>

#include "gradwire/data/data_set.h"
#include "gradwire/data/sampler.h"

namespace gradwire {

/// Number of classes.
inline constexpr std::int64_t kFashionMnistClasses = 10;

/// Images and their classes, in memory.
struct ImageData {
  torch::Tensor images;  ///< N x 1 x 28 x 28, uint8.
  torch::Tensor labels;  ///< N, int64, 0 .. 9.

  std::int64_t size() const { return images.size(0); }

  /// Returns samples as a float32 batch, normalized to mean 0 and standard deviation 1 over the
  /// training images. Thread-safe, as it only reads.
  Batch batch(const SampledBatch& sampled) const;
};

enum class Split { train, test };

/// Reads Fashion-MNIST (Xiao, Rasul, Vollgraf, arXiv:1708.07747), or any data set in the same four
/// files, such as MNIST: {train,t10k}-{images-idx3,labels-idx1}-ubyte, plain or .gz, in the folder
/// `path`. An empty `path` means the folder of Debian's package dataset-fashion-mnist. Throws
/// Exception(invalid_argument), which names the missing or damaged file and the package.
ImageData load_fashion_mnist(Split split, const std::filesystem::path& path = {});

}  // namespace gradwire
