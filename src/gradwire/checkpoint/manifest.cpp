#include "gradwire/checkpoint/manifest.h"

#include <array>
#include <span>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gradwire/base/crc32c.h"
#include "gradwire/base/error.h"
#include "gradwire/checkpoint/safetensors_header.h"

namespace gradwire {
namespace {

using nlohmann::json;

constexpr const char* kFormat = "gradwire checkpoint";
constexpr int kVersion = 1;

[[noreturn]] void refuse(const std::filesystem::path& path, const std::string& reason) {
  throw Exception(ErrorKind::invalid_argument, fmt::format("{}: {}", path.string(), reason));
}

std::string hex(std::uint32_t crc) {
  return fmt::format("{:08x}", crc);
}

/// Of a manifest without its own checksum: JSON has one text for one content, as keys are sorted.
std::string checksum_of(const json& manifest) {
  const auto text = manifest.dump();
  return hex(crc32c(std::as_bytes(std::span(text))));
}

json json_of(const ManifestTensor& tensor) {
  json pieces = json::array();
  for (const auto& piece : tensor.pieces) {
    pieces.push_back({piece.file, piece.begin, piece.count, piece.offset});
  }
  return {{"name", tensor.name},
          {"type", tensor.type},
          {"shape", tensor.shape},
          {"pieces", std::move(pieces)}};
}

json json_of(const RankTensor& tensor) {
  return {{"name", tensor.name},
          {"type", tensor.type},
          {"shape", tensor.shape},
          {"offset", tensor.offset}};
}

template <class Item>
json json_list(const std::vector<Item>& items) {
  json list = json::array();
  for (const auto& item : items) list.push_back(json_of(item));
  return list;
}

ManifestFile file_of(const json& entry) {
  return {.name = entry.at("name").get<std::string>(),
          .bytes = entry.at("bytes").get<std::uint64_t>(),
          .crc = static_cast<std::uint32_t>(
              std::stoul(entry.at("crc32c").get<std::string>(), nullptr, 16))};
}

ManifestTensor tensor_of(const json& entry) {
  ManifestTensor tensor{.name = entry.at("name").get<std::string>(),
                        .type = entry.at("type").get<std::string>(),
                        .shape = entry.at("shape").get<std::vector<std::int64_t>>()};
  for (const auto& piece : entry.at("pieces")) {
    tensor.pieces.push_back({piece.at(0).get<std::size_t>(), piece.at(1).get<std::int64_t>(),
                             piece.at(2).get<std::int64_t>(), piece.at(3).get<std::uint64_t>()});
  }
  return tensor;
}

std::vector<RankTensor> rank_tensors_of(const json& list) {
  std::vector<RankTensor> tensors;
  for (const auto& entry : list) {
    tensors.push_back({entry.at("name").get<std::string>(), entry.at("type").get<std::string>(),
                       entry.at("shape").get<std::vector<std::int64_t>>(),
                       entry.at("offset").get<std::uint64_t>()});
  }
  return tensors;
}

/// Nobody below looks again whether the manifest is consistent.
void check_tensor(const Manifest& manifest, const ManifestTensor& tensor,
                  const std::filesystem::path& path) {
  const auto size = stored_type_bytes(tensor.type);
  if (size == 0) refuse(path, fmt::format("'{}' has unknown type {}", tensor.name, tensor.type));
  std::int64_t next = 0;
  for (const auto& piece : tensor.pieces) {
    const bool fits = piece.file < manifest.files.size() && piece.begin == next &&
                      piece.count >= 0 && piece.offset <= manifest.files[piece.file].bytes &&
                      static_cast<std::uint64_t>(piece.count) <=
                          (manifest.files[piece.file].bytes - piece.offset) / size;
    if (!fits) refuse(path, fmt::format("a piece of '{}' is impossible", tensor.name));
    next += piece.count;
  }
  if (next == elements_of(tensor.shape)) return;
  refuse(path, fmt::format("the pieces of '{}' have {} of its {} elements", tensor.name, next,
                           elements_of(tensor.shape)));
}

Manifest manifest_of(const json& root) {
  Manifest manifest{.step = root.at("step").get<std::int64_t>(),
                    .sequence = root.at("sequence").get<std::int64_t>(),
                    .model = root.at("model").dump(),
                    .run = root.at("run").dump()};
  for (const auto& entry : root.at("files")) manifest.files.push_back(file_of(entry));
  for (const auto& entry : root.at("tensors")) manifest.tensors.push_back(tensor_of(entry));
  for (const auto& list : root.at("rank_tensors")) {
    manifest.rank_tensors.push_back(rank_tensors_of(list));
  }
  return manifest;
}

json checked_json(const std::string& text, const std::filesystem::path& path) {
  auto root = json::parse(text, nullptr, false);
  if (!root.is_object() || root.value("format", "") != kFormat) {
    refuse(path, "is damaged, or no manifest of a gradwire checkpoint");
  }
  if (root.value("version", 0) != kVersion) {
    refuse(path, fmt::format("has version {}; this gradwire reads version {}: update it",
                             root.value("version", 0), kVersion));
  }
  const auto checksum = root.value("checksum", "");
  root.erase("checksum");
  if (checksum != checksum_of(root)) {
    refuse(path, "is damaged: its checksum is not that of its content; use another checkpoint");
  }
  return root;
}

/// A line for each key, and for each element of a list.
std::string text_of(const nlohmann::ordered_json& root) {
  std::string text;
  for (const auto& [key, value] : root.items()) {
    text += fmt::format("{} \"{}\": ", text.empty() ? "{\n" : ",\n", key);
    if (!value.is_array()) {
      text += value.dump();
      continue;
    }
    std::string list;
    for (const auto& element : value) list += (list.empty() ? "" : ",\n  ") + element.dump();
    text += "[\n  " + list + "\n ]";
  }
  return text + "\n}\n";
}

}  // namespace

std::string manifest_text(const Manifest& manifest) {
  json files = json::array();
  for (const auto& file : manifest.files) {
    files.push_back({{"name", file.name}, {"bytes", file.bytes}, {"crc32c", hex(file.crc)}});
  }
  json ranks = json::array();
  for (const auto& list : manifest.rank_tensors) ranks.push_back(json_list(list));
  // What people look for comes first.
  nlohmann::ordered_json root{{"format", kFormat},
                              {"version", kVersion},
                              {"gradwire", GRADWIRE_VERSION},
                              {"sequence", manifest.sequence},
                              {"step", manifest.step},
                              {"ranks", manifest.ranks()},
                              {"model", json::parse(manifest.model)},
                              {"run", json::parse(manifest.run)},
                              {"files", std::move(files)},
                              {"tensors", json_list(manifest.tensors)},
                              {"rank_tensors", std::move(ranks)}};
  root["checksum"] = checksum_of(json::parse(root.dump()));
  return text_of(root);
}

Manifest parse_manifest(const std::string& text, const std::filesystem::path& path) {
  const auto root = checked_json(text, path);
  try {
    auto manifest = manifest_of(root);
    if (manifest.rank_tensors.size() != manifest.files.size() || manifest.files.empty()) {
      refuse(path, "is of no rank");
    }
    for (const auto& tensor : manifest.tensors) check_tensor(manifest, tensor, path);
    return manifest;
  } catch (const json::exception& error) {
    refuse(path, fmt::format("is damaged: {}", error.what()));
  }
}

}  // namespace gradwire
