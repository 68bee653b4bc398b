#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include <torch/torch.h>

namespace gradwire {

/// A tensor of zeros whose memory is a file in `folder`, for states that are read and written once
/// a step: the kernel writes to the disk what does not fit in memory, and reads it back. The file
/// has no name, so that it goes with the last view of the tensor however the process ends; its
/// space on the disk is reserved now. The folder must be on a disk, not in memory as /tmp may be.
/// Throws Exception(system), which names the folder.
torch::Tensor mapped_tensor(const std::filesystem::path& folder,
                            const std::vector<std::int64_t>& sizes, torch::ScalarType type);

/// Moves the memory of this tensor, all of its storage, to such a file: all views of it see the
/// same, and what was its memory is free. Nobody may hold a pointer into it. Throws Exception: as
/// mapped_tensor(), invalid_argument (the tensor is not on the CPU).
void move_to_file(const torch::Tensor& tensor, const std::filesystem::path& folder);

}  // namespace gradwire
