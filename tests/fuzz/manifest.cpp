#include "gradwire/checkpoint/manifest.h"

#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gradwire/base/crc32c.h"
#include "gradwire/base/error.h"
#include "gradwire/checkpoint/safetensors_header.h"
#include "tests/fuzz/target.h"

namespace gradwire::fuzz {
namespace {

checkpoint::Manifest manifest(std::size_t ranks) {
  checkpoint::Manifest manifest{
      .step = 100, .sequence = 2, .model = R"({"name":"mlp"})", .run = "{}"};
  checkpoint::ManifestTensor weight{
      .name = "weight", .type = "F32", .shape = {static_cast<std::int64_t>(ranks), 8}};
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    manifest.files.push_back(
        {fmt::format("rank-{}-of-{}.safetensors", rank, ranks), 4096, 0x1234ABCD});
    weight.pieces.push_back({rank, static_cast<std::int64_t>(8 * rank), 8, 1024});
    manifest.rank_tensors.push_back({{"random", "U8", {16}, 2048}});
  }
  manifest.tensors = {weight,
                      {.name = "step", .type = "I64", .shape = {}, .pieces = {{0, 0, 1, 8}}}};
  return manifest;
}

}  // namespace

std::vector<std::string> seeds() {
  checkpoint::Manifest divided = manifest(2);
  divided.tensors.push_back({.name = "divided",
                             .type = "F32",
                             .shape = {4, 6},
                             .pieces = {{0, 0, 12, 0, 0}, {1, 0, 12, 0, 1}},
                             .view = {2, 2, 6},
                             .boxes = {{{0, 0, 0}, {2, 1, 6}}, {{0, 1, 0}, {2, 2, 6}}}});
  return {checkpoint::manifest_text(manifest(1)), checkpoint::manifest_text(manifest(2)),
          checkpoint::manifest_text(divided)};
}

/// The checksum covers the content without it, with keys in order.
void repair(std::string& input) {
  auto root = nlohmann::json::parse(input, nullptr, false);
  if (!root.is_object()) return;
  root.erase("checksum");
  const auto dump = [&] {
    return root.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  };
  root["checksum"] = fmt::format("{:08x}", crc32c(bytes_of(dump())));
  input = dump();
}

namespace {

void check(const checkpoint::Manifest& found) {
  expect(found.ranks() >= 1 && found.rank_tensors.size() == found.files.size(), "it is of ranks");
  for (const checkpoint::ManifestTensor& tensor : found.tensors) {
    std::uint64_t next = 0;
    std::uint64_t all = 0;
    std::size_t box = 0;
    for (const checkpoint::ManifestPiece& piece : tensor.pieces) {
      expect(piece.file < found.files.size(), "pieces are in files that there are");
      expect(piece.box == 0 || piece.box < tensor.boxes.size(), "of boxes that there are");
      if (std::exchange(box, piece.box) != piece.box) next = 0;
      expect(static_cast<std::uint64_t>(piece.begin) == next && piece.count >= 0,
             "pieces follow one another");
      const std::uint64_t bytes = found.files[piece.file].bytes;
      expect(piece.offset <= bytes &&
                 static_cast<std::uint64_t>(piece.count) <=
                     (bytes - piece.offset) / checkpoint::stored_type_bytes(tensor.type),
             "and lie in their files");
      next += static_cast<std::uint64_t>(piece.count);
      all += static_cast<std::uint64_t>(piece.count);
    }
    expect(static_cast<std::uint64_t>(checkpoint::elements_of(tensor.shape)) == all,
           "and are all of it");
    expect(tensor.boxes.empty() || Division{tensor.view, tensor.boxes}.is_partition(),
           "boxes have each element once");
  }
}

}  // namespace

/// A manifest is either refused with the project's own error, or consistent and unchanged when
/// written again.
void test(std::string_view input) {
  try {
    const checkpoint::Manifest found = checkpoint::parse_manifest(std::string(input), "m.json");
    check(found);
    const std::string text = checkpoint::manifest_text(found);
    expect(checkpoint::manifest_text(checkpoint::parse_manifest(text, "m.json")) == text,
           "it comes back as it was");
  } catch (const Exception& e) {
    expect(e.kind() == ErrorKind::invalid_argument, "a refusal names what is wrong");
    expect(std::string_view(e.what()).starts_with("m.json"), "and where");
  }
}

}  // namespace gradwire::fuzz
