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

/// Three tensors of a model and two of its optimizer, with values of that step.
Content content_of_step(std::int64_t step);

/// Saves that content as `ranks` ranks would: each tensor in `ranks` parts; rank r's file also has
/// "random". Without libtorch, with the library's own functions in the library's order.
void write_checkpoint(checkpoint::Disk& disk, const std::filesystem::path& folder,
                      std::int64_t step, int ranks, std::int64_t sequence);

/// Keeps the `keep` newest.
void prune_checkpoints(checkpoint::Disk& disk, const std::filesystem::path& folder,
                       std::size_t keep);

/// Reads a whole checkpoint, verified.
Content read_checkpoint(const std::filesystem::path& checkpoint);

}  // namespace gradwire::test
