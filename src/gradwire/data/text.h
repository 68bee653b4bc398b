#pragma once

#include <filesystem>

#include <torch/torch.h>

#include "gradwire/data/batch.h"
#include "gradwire/data/fashion_mnist.h"

namespace gradwire {

/// Characters are bytes: a model of text tells one of so many.
inline constexpr std::int64_t kCharacters = 256;

/// A text, cut into samples of `context` bytes, in memory. Of ten samples nine are for training and
/// the last is for testing.
struct TextData {
  torch::Tensor windows;  ///< N x (context + 1), uint8: each a sample and the byte after it.

  std::int64_t size() const { return windows.size(0); }

  /// Inputs and targets are N x context, int64; the target of each byte is the one after it. Reads
  /// only: threads may share the data.
  Batch batch(const SampledBatch& sampled) const;
};

/// Reads a text, plain or compressed by gzip, from the file `path`; empty: the Jargon File (version
/// 4.4.7, in the public domain, 1.4 MB of English), where Debian's package dict-jargon puts it.
/// Throws Exception(invalid_argument) that names the file and the package if it is not there,
/// cannot be read or is too short to test on.
TextData load_text(Split split, std::int64_t context, const std::filesystem::path& path = {});

}  // namespace gradwire
