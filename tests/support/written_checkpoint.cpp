#include "tests/support/written_checkpoint.h"

#include <span>

#include <fmt/format.h>
#include <unistd.h>

#include "gradwire/checkpoint/checkpoint_folder.h"
#include "gradwire/checkpoint/checkpoint_reader.h"
#include "gradwire/checkpoint/disk.h"
#include "gradwire/checkpoint/piece_plan.h"
#include "gradwire/checkpoint/safetensors_header.h"
#include "gradwire/checkpoint/shard_file.h"

namespace gradwire::test {
namespace {

std::vector<std::int64_t> shape_of(const std::string& name, std::size_t count) {
  const auto elements = static_cast<std::int64_t>(count);
  if (name.ends_with("bias")) return {elements};
  return {elements / 10, 10};
}

/// Writes one rank's file; returns its part of the manifest.
void write_rank(checkpoint::Disk& disk, const std::filesystem::path& partial,
                const Content& content, int rank, int ranks, checkpoint::Manifest& manifest) {
  std::map<std::string, std::span<const float>> parts;
  std::vector<checkpoint::StoredTensor> stored;
  for (const auto& tensor : manifest.tensors) {
    for (const auto& piece : tensor.pieces) {
      if (static_cast<int>(piece.file) != rank) continue;
      const std::span<const float> all(content.at(tensor.name));
      parts[tensor.name] =
          all.subspan(static_cast<std::size_t>(piece.begin), static_cast<std::size_t>(piece.count));
      stored.push_back({.name = tensor.name, .type = "F32", .shape = {piece.count}});
    }
  }
  const std::vector<float> random(4, static_cast<float>(rank));
  parts["rank:random"] = random;
  stored.push_back({.name = "rank:random", .type = "F32", .shape = {4}});
  const auto header = checkpoint::lay_out_safetensors(std::move(stored), {{"format", "pt"}});
  manifest.files.push_back(checkpoint::write_shard(
      disk, partial / checkpoint::shard_name(rank, ranks), header,
      [&](const std::string& name) { return std::as_bytes(parts.at(name)); }));
  auto& own = manifest.rank_tensors.emplace_back();
  for (const auto& tensor : header.tensors) {
    const auto offset = header.data_begin + tensor.begin;
    if (tensor.name == "rank:random") own.push_back({"random", "F32", {4}, offset});
    for (auto& whole : manifest.tensors) {
      for (auto& piece : whole.pieces) {
        const bool here = static_cast<int>(piece.file) == rank && whole.name == tensor.name;
        if (here) piece.offset = offset;
      }
    }
  }
}

}  // namespace

Content content_of_step(std::int64_t step) {
  Content content;
  float value = static_cast<float>(1000 * step);
  const auto add = [&](const std::string& name, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) content[name].push_back(value++);
  };
  add("hidden.weight", 6000);
  add("hidden.bias", 30);
  add("output.weight", 300);
  add("optimizer.exp_avg.hidden.weight", 6000);
  add("optimizer.exp_avg.hidden.bias", 30);
  return content;
}

void write_checkpoint(checkpoint::Disk& disk, const std::filesystem::path& folder,
                      std::int64_t step, int ranks, std::int64_t sequence) {
  const auto content = content_of_step(step);
  checkpoint::Manifest manifest{.step = step, .sequence = sequence, .model = R"({"name":"mlp"})"};
  std::vector<checkpoint::HeldPiece> held;
  std::vector<std::uint64_t> load(static_cast<std::size_t>(ranks), 0);
  for (const auto& [name, values] : content) {
    const auto count = static_cast<std::int64_t>(values.size());
    held.clear();
    for (int rank = 0; rank < ranks; ++rank) held.push_back({rank, 0, count});
    manifest.tensors.push_back({name, "F32", shape_of(name, values.size()), {}});
    for (const auto& piece : checkpoint::plan_pieces(name, count, 4, held, load)) {
      manifest.tensors.back().pieces.push_back(
          {static_cast<std::size_t>(piece.rank), piece.begin, piece.count, 0});
    }
  }
  disk.make_folders(folder);
  const auto name = checkpoint::checkpoint_name(step, [&folder](const std::string& candidate) {
    return std::filesystem::exists(folder / candidate);
  });
  checkpoint::SaveLock lock(disk, folder, name, fmt::format("{}-{}", ::getpid(), sequence));
  checkpoint::remove_leftovers(disk, folder, lock);
  disk.make_folder(lock.partial());
  for (int rank = 0; rank < ranks; ++rank) {
    write_rank(disk, lock.partial(), content, rank, ranks, manifest);
  }
  const auto place =
      checkpoint::complete_checkpoint(disk, lock.partial(), folder / name, manifest, true);
  for (const auto& file : manifest.files) checkpoint::check_written(place, file);
  lock.release();
}

void prune_checkpoints(checkpoint::Disk& disk, const std::filesystem::path& folder,
                       std::size_t keep) {
  const auto found = checkpoint::list_checkpoints(folder);
  for (std::size_t i = 0; i + keep < found.size(); ++i)
    checkpoint::remove_checkpoint(disk, found[i].path);
}

Content read_checkpoint(const std::filesystem::path& checkpoint) {
  const checkpoint::CheckpointReader reader(checkpoint);
  reader.verify();
  Content content;
  for (const auto& tensor : reader.manifest().tensors) {
    auto& values = content[tensor.name];
    values.resize(static_cast<std::size_t>(checkpoint::elements_of(tensor.shape)));
    reader.read(tensor, 0, std::as_writable_bytes(std::span(values)));
  }
  return content;
}

}  // namespace gradwire::test
