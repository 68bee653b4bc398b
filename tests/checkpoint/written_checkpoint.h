#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "gradwire/checkpoint/disk.h"
#include "gradwire/checkpoint/manifest.h"

namespace gradwire::test {

/// Float32 tensors by name.
using Content = std::map<std::string, std::vector<float>>;

/// Three tensors of a model and two of its optimiser, with values of that step.
Content content_of_step(std::int64_t step);

/// What it takes for `ranks` ranks to save that content: each tensor in as many parts; rank r's
/// file has "random" too. Without libtorch, by the functions that the real thing calls, in its
/// order.
void write_checkpoint(Disk& disk, const std::filesystem::path& folder, std::int64_t step, int ranks,
                      std::int64_t sequence);

/// Keeps the `keep` newest.
void prune_checkpoints(Disk& disk, const std::filesystem::path& folder, std::size_t keep);

/// All of a checkpoint, verified.
Content read_checkpoint(const std::filesystem::path& checkpoint);

}  // namespace gradwire::test
