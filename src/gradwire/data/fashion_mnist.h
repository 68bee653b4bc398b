#pragma once

#include <filesystem>

#include <torch/torch.h>

#include "gradwire/data/batch.h"
#include "gradwire/data/sampler.h"

namespace gradwire {

/// Of what an image may show.
inline constexpr std::int64_t kFashionMnistClasses = 10;

/// Images and their classes, in memory.
struct ImageData {
  torch::Tensor images;  ///< N x 1 x 28 x 28, uint8.
  torch::Tensor labels;  ///< N, int64, 0 .. 9.

  std::int64_t size() const { return images.size(0); }

  /// The samples as a batch of float32, standardised to mean 0 and deviation 1 over the training
  /// images. Reads only: threads may share the data.
  Batch batch(const SampledBatch& sampled) const;
};

enum class Split { train, test };

/// Reads Fashion-MNIST (Xiao, Rasul, Vollgraf, arXiv:1708.07747), or any data set in the same four
/// files, such as MNIST itself: {train,t10k}-{images-idx3,labels-idx1}-ubyte, plain or .gz, in the
/// folder `path`; empty: where Debian's package dataset-fashion-mnist puts it. Throws
/// Exception(invalid_argument) naming the file missing or damaged, and the package.
ImageData load_fashion_mnist(Split split, const std::filesystem::path& path = {});

}  // namespace gradwire
