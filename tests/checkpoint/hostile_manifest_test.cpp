#include <fstream>
#include <functional>
#include <limits>
#include <span>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>

#include "gradwire/base/crc32c.h"
#include "gradwire/base/error.h"
#include "gradwire/checkpoint/checkpoint_folder.h"
#include "gradwire/checkpoint/checkpoint_reader.h"
#include "tests/support/mortal_disk.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/written_checkpoint.h"

/// Malformed manifests with valid checksums.
namespace gradwire::test {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max();

struct HostileManifest : ::testing::Test {
  HostileManifest() {
    write_checkpoint(disk, place, 7, 3, 1);
    write_checkpoint(disk, place, 8, 3, 2);
    std::getline(std::ifstream(manifest), text, '\0');
  }

  /// Returns list_checkpoints()'s error for a manifest with this content. The other checkpoint must
  /// be reported intact.
  std::string damage_of(const std::string& content) {
    std::ofstream(manifest, std::ios::binary) << content;
    return damage();
  }

  std::string damage() {
    std::string damage = "nothing";
    bool other = false;
    for (const auto& found : checkpoint::list_checkpoints(place)) {
      if (found.path.filename() == "step-000007") damage = found.damage;
      other = other || (found.path.filename() == "step-000008" && found.damage.empty());
    }
    EXPECT_TRUE(other);
    return damage;
  }

  /// Returns the manifest after `edit`, with the checksum of its new content.
  std::string edited(const std::function<void(json&)>& edit) const {
    auto root = json::parse(text);
    root.erase("checksum");
    edit(root);
    const auto content = root.dump();
    root["checksum"] = fmt::format("{:08x}", crc32c(std::as_bytes(std::span(content))));
    return root.dump();
  }

  void expect_refused(const std::string& what, const std::string& said,
                      const std::function<void(json&)>& edit) {
    EXPECT_THAT(damage_of(edited(edit)), AllOf(HasSubstr("step-000007/manifest.json: "),
                                               HasSubstr(said), Not(HasSubstr("exception"))))
        << what;
  }

  TemporaryFolder folder;
  std::filesystem::path place = folder / "checkpoints";
  std::filesystem::path manifest = place / "step-000007" / checkpoint::kManifestName;
  MortalDisk disk{-1, false};
  std::string text;
};

TEST_F(HostileManifest, EditedWithoutHarmIsRead) {
  EXPECT_EQ(damage_of(edited([](json& root) { root["step"] = 70; })), "");
}

TEST_F(HostileManifest, NamesNoFileOutsideItsFolder) {
  for (const auto* name : {"../rank-0-of-3.safetensors", "/etc/passwd", "..", ".", "", "a/b", "./a",
                           "manifest.json"}) {
    expect_refused(name, "'files[0].name'", [&](json& root) { root["files"][0]["name"] = name; });
  }
  expect_refused("a name twice", "'files[1].name'",
                 [](json& root) { root["files"][0]["name"] = root["files"][1]["name"]; });
  expect_refused("a NUL", "'files[0].name'",
                 [&](json& root) { root["files"][0]["name"] = std::string("a\0b", 3); });
}

TEST_F(HostileManifest, ChecksumsOfFilesAreEightHexadecimalDigits) {
  for (const auto& crc : {json("zz"), json(""), json("123456789"), json("-1234567"),
                          json(" 1234567"), json("0x123456"), json(5), json(nullptr)}) {
    expect_refused(crc.dump(), "'files[1].crc32c'",
                   [&](json& root) { root["files"][1]["crc32c"] = crc; });
  }
}

TEST_F(HostileManifest, NumbersAreWholeAndInRange) {
  for (const auto& number : {json(1e300), json("7"), json(true), json(-1), json(1.5), json(nullptr),
                             json(kLargest), json(~0ull), json::array()}) {
    for (const auto* key : {"step", "sequence"}) {
      expect_refused(key + number.dump(), "'" + std::string(key) + "'",
                     [&](json& root) { root[key] = number; });
    }
  }
  for (const auto& number : {json(-1), json(~0ull), json("many"), json(2.5)}) {
    expect_refused("bytes " + number.dump(), "'files[2].bytes'",
                   [&](json& root) { root["files"][2]["bytes"] = number; });
  }
}

TEST_F(HostileManifest, FormatVersionAndChecksumMayBeOfAnyType) {
  for (const auto& value : {json(7), json(nullptr), json::array(), json::object(), json(1.5)}) {
    expect_refused("format", "is not a valid gradwire manifest",
                   [&](json& root) { root["format"] = value; });
    if (value != json(7)) {
      expect_refused("version", "'version'", [&](json& root) { root["version"] = value; });
    }
    auto root = json::parse(text);
    root["checksum"] = value;
    EXPECT_THAT(damage_of(root.dump()), HasSubstr("checksum"));
  }
}

TEST_F(HostileManifest, ShapesDoNotOverflow) {
  const auto shapes = {json{-1},
                       json{std::int64_t{1} << 40, std::int64_t{1} << 40},
                       json{std::int64_t{1} << 62, 4},
                       json{kLargest},
                       json{0, kLargest, kLargest},
                       json{-1, -6000},
                       json{1.5},
                       json("4")};
  for (const auto& shape : shapes) {
    expect_refused(shape.dump(), "'tensors[0].shape",
                   [&](json& root) { root["tensors"][0]["shape"] = shape; });
    expect_refused(shape.dump(), "'rank_tensors[2][0].shape",
                   [&](json& root) { root["rank_tensors"][2][0]["shape"] = shape; });
  }
}

TEST_F(HostileManifest, PiecesDoNotOverflow) {
  const json largest = kLargest;
  const auto pieces = {json{{0, 0, largest, 0}, {0, largest, largest, 0}, {0, -2, 32, 0}},
                       json{{0, 0, -1, 0}},
                       json{{9, 0, 6000, 0}},
                       json{{-1, 0, 6000, 0}},
                       json{{0, 0, 6000}},
                       json{{0, 0, 6000, 0, 0}},
                       json{{0, 0, 6000, ~0ull}},
                       json{{0, 0, 6000, -1}},
                       json{"0000"},
                       json::array(),
                       json::object(),
                       json(3)};
  for (const auto& list : pieces) {
    expect_refused(list.dump(), "'tensors[1].pieces", [&](json& root) {
      for (auto& file : root["files"]) file["bytes"] = std::int64_t{1} << 50;
      root["tensors"][1]["pieces"] = list;
    });
  }
}

TEST_F(HostileManifest, BoxesAreAPartition) {
  const auto divided = [](const json& view, const json& boxes, const json& pieces) {
    return [=](json& root) {
      for (auto& file : root["files"]) file["bytes"] = std::int64_t{1} << 50;
      root["tensors"][1]["shape"] = {6000};
      root["tensors"][1]["view"] = view;
      root["tensors"][1]["boxes"] = boxes;
      root["tensors"][1]["pieces"] = pieces;
    };
  };
  const json view{60, 100};
  const json left{{0, 0}, {60, 50}};
  const json right{{0, 50}, {60, 100}};
  const json pieces{{0, 0, 3000, 0, 0}, {1, 0, 1000, 0, 1}, {2, 1000, 2000, 0, 1}};
  EXPECT_EQ(damage_of(edited(divided(view, {left, right}, pieces))), "");
  const auto refuse = [&](const std::string& said, const json& boxes) {
    expect_refused(boxes.dump(), said, divided(view, boxes, pieces));
  };
  refuse("each element exactly once", {left, left});
  refuse("each element exactly once", {left, {{0, 50}, {60, 99}}});
  refuse("'tensors[1].boxes[1]'", {left, {{0, 50}, {60, 101}}});
  refuse("'tensors[1].boxes[1]'", {left, {{0, 100}, {60, 50}}});
  refuse("'tensors[1].boxes[1]'", {left, {{0, 50}, {0, 100}}});
  refuse("'tensors[1].boxes[0]'", {{{0}, {60}}, right});
  refuse("'tensors[1].boxes[1]'", {left, 3});
  refuse("'tensors[1].boxes'", json::array());
  refuse("'tensors[1].boxes'", json(std::vector<json>(300, left)));
  for (const json& wrong : {json{60, 101}, json{6001}, json("60"), json{kLargest, kLargest}}) {
    expect_refused(wrong.dump(), "'tensors[1].view", divided(wrong, {left, right}, pieces));
  }
  for (const json& wrong : {json{{0, 0, 3000, 0, 0}}, json{{0, 0, 3000, 0, 1}, {0, 0, 3000, 0, 0}},
                            json{{0, 0, 3000, 0, 0}, {0, 0, 3000, 0, 7}}, json{{0, 0, 6000, 0, 0}},
                            json{{0, 0, 3000, 0}, {0, 0, 3000, 0}}}) {
    expect_refused(wrong.dump(), "'tensors[1].pieces", divided(view, {left, right}, wrong));
  }
}

TEST_F(HostileManifest, RankTensorsLieInTheFileOfTheirRank) {
  expect_refused("type", "'rank_tensors[0][0].type'",
                 [](json& root) { root["rank_tensors"][0][0]["type"] = "F31"; });
  for (const auto& offset : {json(~0ull), json(-1), json(std::int64_t{1} << 40), json("0")}) {
    expect_refused("offset", "'rank_tensors[1][0].offset'",
                   [&](json& root) { root["rank_tensors"][1][0]["offset"] = offset; });
  }
  expect_refused("one rank less", "'rank_tensors'",
                 [](json& root) { root["rank_tensors"].erase(0); });
}

TEST_F(HostileManifest, PartsOfOtherTypesOrMissingAreNamed) {
  for (const auto* key : {"files", "tensors", "rank_tensors", "run", "model", "step"}) {
    expect_refused(key, "'" + std::string(key) + "'", [&](json& root) { root.erase(key); });
  }
  for (const auto* key : {"files", "tensors", "rank_tensors"}) {
    for (const auto& value : {json(3), json("text"), json::object(), json{3}}) {
      expect_refused(key, "'" + std::string(key), [&](json& root) { root[key] = value; });
    }
  }
  expect_refused("run", "'run'", [](json& root) { root["run"] = 3; });
  expect_refused("files", "'files'", [](json& root) { root["files"] = json::array(); });
  expect_refused("twice", "'tensors[1].name'",
                 [](json& root) { root["tensors"][1]["name"] = root["tensors"][0]["name"]; });
}

TEST_F(HostileManifest, DepthAndSizeHaveLimits) {
  constexpr std::size_t kDeep = 1'000'000;
  const auto deep = std::string(kDeep, '[') + std::string(kDeep, ']');
  EXPECT_THAT(
      damage_of(R"({"format": "gradwire checkpoint", "version": 1, "model": )" + deep + "}"),
      HasSubstr("nested"));
  EXPECT_THAT(damage_of(deep), HasSubstr("nested"));
  std::filesystem::resize_file(manifest, std::uintmax_t{1} << 40);
  EXPECT_THAT(damage(), HasSubstr("1099511627776 bytes"));
}

TEST_F(HostileManifest, EveryBeginningOfItIsRefused) {
  for (std::size_t length = 0; length < text.size() - 2; length += 1 + length / 50) {
    EXPECT_NE(damage_of(text.substr(0, length)), "") << length;
  }
}

TEST_F(HostileManifest, APipeIsNotWaitedFor) {
  const auto shard = place / "step-000008" / "rank-0-of-3.safetensors";
  std::filesystem::remove(shard);
  ASSERT_EQ(::mkfifo(shard.c_str(), 0600), 0);
  EXPECT_THROW(checkpoint::CheckpointReader(place / "step-000008"), Exception);
  std::filesystem::remove(manifest);
  ASSERT_EQ(::mkfifo(manifest.c_str(), 0600), 0);
  EXPECT_THAT(damage(), HasSubstr("it is not a file"));
}

TEST_F(HostileManifest, AnEntryThatCannotBeLookedAtDoesNotHideTheOthers) {
  std::filesystem::create_symlink("step-000009", place / "step-000009");
  std::filesystem::create_symlink("nowhere", place / "step-000010");
  EXPECT_EQ(damage(), "");
  const auto found = checkpoint::list_checkpoints(place);
  ASSERT_EQ(found.size(), 3u) << "what leads nowhere has been removed";
  EXPECT_THAT(found[0].damage, AllOf(HasSubstr("step-000009"), HasSubstr("symbolic link")));
  std::filesystem::remove_all(place / "step-000007");
  std::filesystem::create_directories(manifest);
  EXPECT_THAT(damage(), HasSubstr("it is not a file"));
}

}  // namespace
}  // namespace gradwire::test
