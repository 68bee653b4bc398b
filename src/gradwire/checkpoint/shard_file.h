#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "gradwire/checkpoint/disk.h"
#include "gradwire/checkpoint/manifest.h"
#include "gradwire/checkpoint/safetensors_header.h"

namespace gradwire::checkpoint {

/// Writes the file of one rank; returns after it is on the disk. `bytes(name)` returns a tensor's
/// data, valid until its next call. Throws Exception(system).
ManifestFile write_shard(Disk& disk, const std::filesystem::path& path,
                         const SafetensorsHeader& header,
                         const std::function<ConstBytes(const std::string& name)>& bytes);

}  // namespace gradwire::checkpoint
