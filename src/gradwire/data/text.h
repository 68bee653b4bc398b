#pragma once

#include <filesystem>

#include <torch/torch.h>

#include "gradwire/data/data_set.h"
#include "gradwire/data/fashion_mnist.h"

namespace gradwire {

/// Number of classes of a text model: characters are bytes.
inline constexpr std::int64_t kCharacters = 256;

/// A text, cut into samples of `context` bytes, in memory. Every tenth sample is for testing, the
/// other nine are for training.
struct TextData {
  torch::Tensor windows;  ///< N x (context + 1), uint8: each a sample and the next byte.

  std::int64_t size() const { return windows.size(0); }

  /// Returns inputs and targets of shape N x context, int64; the target of each byte is the next
  /// byte. Thread-safe, as it only reads.
  Batch batch(const SampledBatch& sampled) const;
};

/// Reads a text file, plain or gzip. An empty `path` means the Jargon File (version 4.4.7, public
/// domain, 1.4 MB of English) of Debian's package dict-jargon. Throws Exception(invalid_argument),
/// which names the file and the package, if the file is missing, cannot be read or is too short to
/// test on.
TextData load_text(Split split, std::int64_t context, const std::filesystem::path& path = {});

}  // namespace gradwire
