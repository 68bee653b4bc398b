#include "gradwire/checkpoint/manifest.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <set>
#include <span>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gradwire/base/crc32c.h"
#include "gradwire/base/refuse.h"
#include "gradwire/checkpoint/safetensors_header.h"
#include "gradwire/checkpoint/strict_json.h"

namespace gradwire::checkpoint {
namespace {

using nlohmann::json;

constexpr const char* kFormat = "gradwire checkpoint";
constexpr std::uint64_t kVersion = 1;
constexpr std::uint64_t kVersionWithBoxes = 2;
constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 62;  // The sum of two does not overflow.
constexpr std::uint64_t kMaxCount = std::uint64_t{1} << 53;  // Maximum of counters; + 1 does not
                                                             // overflow.

std::string hex(std::uint32_t crc) {
  return fmt::format("{:08x}", crc);
}

/// Checksum of a manifest without its "checksum" key. JSON keys are sorted, so equal content gives
/// equal text.
std::string checksum_of(const json& manifest) {
  const auto text = manifest.dump();
  return hex(crc32c(std::as_bytes(std::span(text))));
}

json json_of(const ManifestTensor& tensor) {
  json pieces = json::array();
  for (const auto& piece : tensor.pieces) {
    pieces.push_back({piece.file, piece.begin, piece.count, piece.offset});
    if (!tensor.boxes.empty()) pieces.back().push_back(piece.box);
  }
  json entry{{"name", tensor.name},
             {"type", tensor.type},
             {"shape", tensor.shape},
             {"pieces", std::move(pieces)}};
  if (tensor.boxes.empty()) return entry;
  entry["view"] = tensor.view;
  for (const Box& box : tensor.boxes) entry["boxes"].push_back({box.begin, box.end});
  return entry;
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

/// Returns true if the name is that of a file in the checkpoint's folder, and not a path.
bool is_plain_name(const std::string& name) {
  const bool plain = name.find_first_of(std::string("/\0", 2)) == std::string::npos;
  return plain && !name.empty() && name != "." && name != ".." && name != kManifestName;
}

std::uint32_t crc_of(const StrictJson& value) {
  const auto text = value.text();
  std::uint32_t crc = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), crc, 16);
  if (error == std::errc() && text.size() == 8 && end == text.data() + 8) return crc;
  value.refuse("eight hexadecimal digits");
}

ManifestFile file_of(const StrictJson& entry) {
  ManifestFile file{.name = entry.at("name").text(),
                    .bytes = entry.at("bytes").number(kMaxBytes),
                    .crc = crc_of(entry.at("crc32c"))};
  if (!is_plain_name(file.name)) entry.at("name").refuse("the plain name of a file, without '/'");
  return file;
}

std::vector<std::int64_t> shape_of(const StrictJson& entry, const std::string& type) {
  if (stored_type_bytes(type) == 0) entry.at("type").refuse("a safetensors type");
  const auto sizes = entry.at("shape").numbers(kMaxBytes);
  std::vector<std::int64_t> shape(sizes.begin(), sizes.end());
  if (!stored_tensor_bytes(type, shape)) entry.at("shape").refuse("at most 4 EiB in total");
  return shape;
}

Shape indices_of(const StrictJson& entry) {
  const auto numbers = entry.numbers(kMaxBytes);
  return {numbers.begin(), numbers.end()};
}

/// Reads the view and the boxes, which must be a partition of the tensor.
void add_boxes(const StrictJson& entry, ManifestTensor& tensor) {
  tensor.view = indices_of(entry.at("view"));
  const auto bytes = stored_tensor_bytes(tensor.type, tensor.view);
  if (!bytes || elements_of(tensor.view) != elements_of(tensor.shape)) {
    entry.at("view").refuse("a shape of as many elements as the tensor");
  }
  const auto boxes = entry.at("boxes").list();
  if (boxes.empty() || boxes.size() > kMaxBoxes) {
    entry.at("boxes").refuse(fmt::format("1 to {} boxes", kMaxBoxes));
  }
  const Box whole = whole_box(tensor.view);
  for (const auto& item : boxes) {
    const auto ends = item.list();
    if (ends.size() != 2) item.refuse("[first indices, ends]");
    Box box{indices_of(ends[0]), indices_of(ends[1])};
    const bool fits = box.begin.size() == whole.dimensions() &&
                      box.end.size() == whole.dimensions() &&
                      std::ranges::equal(box.begin, box.end, std::less_equal()) &&
                      std::ranges::equal(box.end, whole.end, std::less_equal());
    if (!fits || box.empty()) item.refuse("a box of elements within the tensor's view");
    tensor.boxes.push_back(std::move(box));
  }
  if (Division{tensor.view, tensor.boxes}.is_partition()) return;
  entry.at("boxes").refuse("boxes that have each element exactly once");
}

ManifestPiece piece_of(const StrictJson& entry, const Manifest& manifest,
                       const ManifestTensor& tensor) {
  const auto numbers = entry.numbers(kMaxBytes);
  const bool has_box = !tensor.boxes.empty();
  if (numbers.size() != (has_box ? 5 : 4)) {
    entry.refuse(has_box ? "[file, first element, elements, offset, box]"
                         : "[file, first element, elements, offset]");
  }
  const ManifestPiece piece{numbers[0], static_cast<std::int64_t>(numbers[1]),
                            static_cast<std::int64_t>(numbers[2]), numbers[3],
                            has_box ? numbers[4] : 0};
  if (piece.file >= manifest.files.size()) entry.refuse("a piece of one of the files");
  const auto bytes = manifest.files[piece.file].bytes;
  if (piece.offset > bytes ||
      numbers[2] > (bytes - piece.offset) / stored_type_bytes(tensor.type)) {
    entry.refuse(fmt::format("a piece within the {} bytes of its file", bytes));
  }
  return piece;
}

/// Appends the pieces of a tensor whose other fields are set. Each piece must lie within its file,
/// and the pieces must be contiguous, box after box, and cover the tensor.
void add_pieces(const StrictJson& list, const Manifest& manifest, ManifestTensor& tensor) {
  std::vector<std::int64_t> elements{elements_of(tensor.shape)};
  if (!tensor.boxes.empty()) {
    elements.clear();
    for (const Box& box : tensor.boxes) elements.push_back(box.elements());
  }
  std::size_t box = 0;
  std::int64_t next = 0;
  for (const auto& entry : list.list()) {
    const ManifestPiece piece = piece_of(entry, manifest, tensor);
    if (next == elements[box] && box + 1 < elements.size()) {
      ++box;
      next = 0;
    }
    if (piece.box != box || piece.begin != next || piece.count > elements[box] - next) {
      entry.refuse(fmt::format("a piece that begins at element {} and lies within the {} elements",
                               next, elements[box]));
    }
    next += piece.count;
    tensor.pieces.push_back(piece);
  }
  if (box + 1 != elements.size() || next != elements[box]) {
    list.refuse(
        fmt::format("pieces of all {} elements of '{}'", elements_of(tensor.shape), tensor.name));
  }
}

ManifestTensor tensor_of(const StrictJson& entry, const Manifest& manifest) {
  ManifestTensor tensor{.name = entry.at("name").text(), .type = entry.at("type").text()};
  tensor.shape = shape_of(entry, tensor.type);
  if (entry.has("boxes")) add_boxes(entry, tensor);
  add_pieces(entry.at("pieces"), manifest, tensor);
  return tensor;
}

RankTensor rank_tensor_of(const StrictJson& entry, const ManifestFile& file) {
  RankTensor tensor{.name = entry.at("name").text(), .type = entry.at("type").text()};
  tensor.shape = shape_of(entry, tensor.type);
  tensor.offset = entry.at("offset").number(kMaxBytes);
  const auto bytes = *stored_tensor_bytes(tensor.type, tensor.shape);
  if (tensor.offset <= file.bytes && bytes <= file.bytes - tensor.offset) return tensor;
  entry.at("offset").refuse(fmt::format("at least {} bytes before the end of {}, which has {}",
                                        bytes, file.name, file.bytes));
}

/// Reads a list of named items. Throws Exception(invalid_argument) if two have the same name.
template <class Item, class Read>
std::vector<Item> named_items(const StrictJson& list, const Read& read) {
  std::vector<Item> items;
  std::set<std::string> names;
  for (const auto& entry : list.list()) {
    items.push_back(read(entry));
    if (!names.insert(items.back().name).second) entry.at("name").refuse("a unique name");
  }
  return items;
}

void add_rank_tensors(const StrictJson& entry, Manifest& manifest) {
  const auto lists = entry.list();
  const auto ranks = manifest.files.size();
  if (lists.size() != ranks) entry.refuse(fmt::format("one list for each of {} files", ranks));
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    manifest.rank_tensors.push_back(named_items<RankTensor>(lists[rank], [&](const auto& tensor) {
      return rank_tensor_of(tensor, manifest.files[rank]);
    }));
  }
}

Manifest manifest_of(const StrictJson& root) {
  Manifest manifest{.step = static_cast<std::int64_t>(root.at("step").number(kMaxCount)),
                    .sequence = static_cast<std::int64_t>(root.at("sequence").number(kMaxCount)),
                    .model = root.at("model").json(),
                    .run = root.at("run").object().json()};
  manifest.files = named_items<ManifestFile>(root.at("files"), file_of);
  if (manifest.files.empty()) root.at("files").refuse("a list with one file per rank");
  manifest.tensors = named_items<ManifestTensor>(
      root.at("tensors"), [&](const auto& entry) { return tensor_of(entry, manifest); });
  add_rank_tensors(root.at("rank_tensors"), manifest);
  return manifest;
}

/// Parses the manifest, verifies its checksum, and returns the content without the checksum.
json checked_json(std::string_view text) {
  if (text.size() > kMaxManifestBytes) {
    refuse("has {} bytes, but a manifest has at most {}", text.size(), kMaxManifestBytes);
  }
  auto parsed = parse_bounded_json(text);
  if (!parsed)
    refuse("is not a valid gradwire manifest (damaged, or another format): {}",
           parsed.error().message);
  auto& root = *parsed;
  if (!root.is_object() || !root.contains("format") || root["format"] != kFormat) {
    refuse("is not a valid gradwire manifest (damaged, or another format)");
  }
  const auto version = StrictJson(root).at("version").number(kMaxCount);
  if (version != kVersion && version != kVersionWithBoxes) {
    refuse("has version {}, but this gradwire reads versions {} and {}: update gradwire", version,
           kVersion, kVersionWithBoxes);
  }
  const json checksum = root.contains("checksum") ? root["checksum"] : json();
  root.erase("checksum");
  if (checksum != checksum_of(root)) {
    refuse("is damaged: its checksum does not match its content; use another checkpoint");
  }
  return std::move(root);
}

/// Formats one line per key and per list element.
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

BoxRange ManifestTensor::range_of(const ManifestPiece& piece) const {
  const TensorPart part = boxes.empty() ? whole_part(shape) : TensorPart{view, boxes[piece.box]};
  return {part, piece.begin, piece.count};
}

std::string manifest_text(const Manifest& manifest) {
  json files = json::array();
  for (const auto& file : manifest.files) {
    files.push_back({{"name", file.name}, {"bytes", file.bytes}, {"crc32c", hex(file.crc)}});
  }
  json ranks = json::array();
  for (const auto& list : manifest.rank_tensors) ranks.push_back(json_list(list));
  // Fields that users look for come first.
  const bool has_boxes = std::ranges::any_of(
      manifest.tensors, [](const ManifestTensor& tensor) { return !tensor.boxes.empty(); });
  nlohmann::ordered_json root{{"format", kFormat},
                              {"version", has_boxes ? kVersionWithBoxes : kVersion},
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

Result<Manifest> parse_manifest(std::string_view text) {
  try {
    const auto root = checked_json(text);
    try {
      return manifest_of(StrictJson(root));
    } catch (const Exception& error) {
      refuse("is damaged: {}; use another checkpoint", error.what());
    }
  } catch (const Exception& error) {
    return failure(error.kind(), error.what());
  }
}

Manifest parse_manifest(std::string_view text, const std::filesystem::path& path) {
  auto parsed = parse_manifest(text);
  if (parsed) return std::move(*parsed);
  refuse("{}: {}", path.string(), parsed.error().message);
}

}  // namespace gradwire::checkpoint
