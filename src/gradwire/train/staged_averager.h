#pragma once

#include <memory>
#include <vector>

#include <torch/torch.h>

#include "gradwire/gradient/averager.h"

namespace gradwire {

/// Averages buckets in an accelerator's memory: each is copied to pinned host memory in the order
/// of streams, averaged there by `own`, and copied back. start() is about `flats[bucket]`, whatever
/// span it is given. After wait() the caller's current stream goes on when the mean is there.
std::unique_ptr<Averager> staged_averager(Rank rank, std::unique_ptr<Averager> own,
                                          std::vector<torch::Tensor> flats);

}  // namespace gradwire
