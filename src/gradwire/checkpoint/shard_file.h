#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "gradwire/checkpoint/disk.h"
#include "gradwire/checkpoint/manifest.h"
#include "gradwire/checkpoint/safetensors_header.h"

namespace gradwire {

/// Writes a rank's file, and returns when it is on the disk. `bytes(name)` gives a tensor's data,
/// valid until it is called again. Throws Exception(system).
ManifestFile write_shard(Disk& disk, const std::filesystem::path& path,
                         const SafetensorsHeader& header,
                         const std::function<ConstBytes(const std::string& name)>& bytes);

}  // namespace gradwire
