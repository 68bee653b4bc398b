#pragma once

#include <memory>
#include <vector>

#include <torch/torch.h>

#include "gradwire/gradient/averager.h"

namespace gradwire {

/// Averages buckets that are in an accelerator's memory. Each is copied to pinned host memory in
/// stream order, averaged there by `own`, and copied back. start() averages `flats[bucket]`,
/// whatever span it is given. wait() makes the caller's current stream wait for the mean.
std::unique_ptr<Averager> staged_averager(Rank rank, std::unique_ptr<Averager> own,
                                          std::vector<torch::Tensor> flats);

}  // namespace gradwire
