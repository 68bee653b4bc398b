#include "gradwire/checkpoint/shard_file.h"

#include <span>

#include "gradwire/base/crc32c.h"

namespace gradwire::checkpoint {

ManifestFile write_shard(Disk& disk, const std::filesystem::path& path,
                         const SafetensorsHeader& header,
                         const std::function<ConstBytes(const std::string& name)>& bytes) {
  const auto file = disk.create(path);
  ManifestFile written{.name = path.filename().string()};
  const auto append = [&](ConstBytes data) {
    written.crc = crc32c(data, written.crc);
    written.bytes += data.size();
    disk.write(file, data, path);
  };
  const auto text = safetensors_header_bytes(header);
  append(std::as_bytes(std::span(text)));
  for (const auto& tensor : header.tensors) append(bytes(tensor.name));
  disk.flush(file, path);
  return written;
}

}  // namespace gradwire::checkpoint
