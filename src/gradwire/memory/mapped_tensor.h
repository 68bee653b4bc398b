#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include <torch/torch.h>

namespace gradwire {

/// Returns a tensor of zeros backed by a file in `folder`, for states that are read and written
/// once per step: the kernel pages them to and from the disk if memory is short. The file is
/// unnamed, so it is removed with the last view of the tensor, however the process ends. Its disk
/// space is reserved immediately. The folder must be on a disk, not in memory as /tmp may be.
/// Throws Exception(system), which names the folder.
torch::Tensor mapped_tensor(const std::filesystem::path& folder,
                            const std::vector<std::int64_t>& sizes, torch::ScalarType type);

/// Moves this tensor's whole storage to such a file and frees its memory. All views of the storage
/// remain valid, but raw pointers into it do not. Throws Exception: as mapped_tensor(),
/// invalid_argument (the tensor is not on the CPU).
void move_to_file(const torch::Tensor& tensor, const std::filesystem::path& folder);

}  // namespace gradwire
