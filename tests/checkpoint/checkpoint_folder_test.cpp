#include "gradwire/checkpoint/checkpoint_folder.h"

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/base/error.h"
#include "gradwire/checkpoint/consolidate.h"
#include "gradwire/checkpoint/safetensors_header.h"
#include "tests/support/mortal_disk.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/written_checkpoint.h"

namespace gradwire::test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct CheckpointFolder : ::testing::Test {
  void write(std::int64_t step, std::int64_t sequence, int ranks = 3) {
    write_checkpoint(disk, place, step, ranks, sequence);
  }

  std::vector<std::string> names() {
    std::vector<std::string> names;
    for (const auto& found : checkpoint::list_checkpoints(place))
      names.push_back(found.path.filename());
    return names;
  }

  /// Replaces the only occurrence of `from` in the manifest by `to`.
  void edit_manifest(const std::string& from, const std::string& to) {
    const auto path = place / "step-000007" / checkpoint::kManifestName;
    std::string text;
    std::getline(std::ifstream(path), text, '\0');
    const auto at = text.find(from);
    ASSERT_NE(at, std::string::npos);
    std::ofstream(path) << text.replace(at, from.size(), to);
  }

  template <class Act>
  static std::string error_of(const Act& act) {
    try {
      act();
    } catch (const Exception& error) {
      EXPECT_EQ(error.kind(), ErrorKind::invalid_argument);
      return error.what();
    }
    return "no error";
  }

  TemporaryFolder folder;
  std::filesystem::path place = folder / "out" / "checkpoints";
  MortalDisk disk{-1, false};
};

TEST_F(CheckpointFolder, NewestIsTheLastWrittenNotTheHighestStep) {
  EXPECT_TRUE(checkpoint::list_checkpoints(place).empty());
  write(20, 1);
  write(10, 2);
  write(10, 3);
  EXPECT_THAT(names(), ElementsAre("step-000020", "step-000010", "step-000010.2"));
  EXPECT_EQ(checkpoint::find_checkpoint(place), place / "step-000010.2");
  EXPECT_EQ(checkpoint::find_checkpoint(folder / "out"), place / "step-000010.2");
  EXPECT_EQ(checkpoint::find_checkpoint(place / "step-000020"), place / "step-000020");
  std::ofstream(folder / "out" / "model.safetensors") << "a model";
  EXPECT_EQ(checkpoint::find_checkpoint(folder / "out" / "model.safetensors"),
            place / "step-000010.2");
  prune_checkpoints(disk, place, 1);
  EXPECT_THAT(names(), ElementsAre("step-000010.2"));
}

TEST_F(CheckpointFolder, MissingCheckpointIsAnErrorWithTheReason) {
  EXPECT_THAT(error_of([&] { checkpoint::find_checkpoint(place); }),
              HasSubstr("no such checkpoint"));
  std::filesystem::create_directories(place / "step-000003");
  EXPECT_THAT(error_of([&] { checkpoint::find_checkpoint(place); }), HasSubstr("manifest.json"));
  std::ofstream(folder / "model.safetensors") << "a model";
  EXPECT_THAT(error_of([&] { checkpoint::find_checkpoint(folder / "model.safetensors"); }),
              AllOf(HasSubstr("not a checkpoint"), HasSubstr("checkpoint_every")));
}

TEST_F(CheckpointFolder, OneThatCannotBeListedIsNotAnEmptyOne) {
  EXPECT_TRUE(checkpoint::list_checkpoints(place / "nowhere").empty());
  std::filesystem::create_directories(place);
  std::filesystem::create_symlink("loop", place / "loop");
  try {
    checkpoint::list_checkpoints(place / "loop");
    FAIL() << "it was listed";
  } catch (const Exception& error) {
    EXPECT_EQ(error.kind(), ErrorKind::system);
    EXPECT_THAT(error.what(), HasSubstr("loop cannot be listed: "));
  }
}

TEST_F(CheckpointFolder, ReadsAnyRangeOfElements) {
  write(7, 1, 4);
  const checkpoint::CheckpointReader reader(place / "step-000007");
  const auto content = content_of_step(7);
  for (const auto& tensor : reader.manifest().tensors) {
    const auto& whole = content.at(tensor.name);
    for (std::size_t begin = 0; begin < whole.size(); begin += 1 + whole.size() / 7) {
      std::vector<float> part(std::min<std::size_t>(whole.size() - begin, 2000));
      reader.read(tensor, static_cast<std::int64_t>(begin),
                  std::as_writable_bytes(std::span(part)));
      EXPECT_TRUE(
          std::equal(part.begin(), part.end(), whole.begin() + static_cast<std::ptrdiff_t>(begin)));
    }
  }
}

TEST_F(CheckpointFolder, DamageIsFoundAndNamesTheFile) {
  write(7, 1);
  const auto file = place / "step-000007" / "rank-1-of-3.safetensors";
  const auto size = std::filesystem::file_size(file);
  {
    std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
    bytes.seekp(static_cast<std::streamoff>(size - 9));
    bytes.put('x');
  }
  EXPECT_THAT(error_of([&] { read_checkpoint(place / "step-000007"); }),
              AllOf(HasSubstr("rank-1-of-3.safetensors"), HasSubstr("CRC-32C")));
  std::filesystem::resize_file(file, size - 1);
  EXPECT_THAT(error_of([&] { read_checkpoint(place / "step-000007"); }),
              AllOf(HasSubstr("rank-1-of-3.safetensors"), HasSubstr("bytes where")));
  std::filesystem::remove(file);
  EXPECT_THAT(error_of([&] { read_checkpoint(place / "step-000007"); }),
              AllOf(HasSubstr("rank-1-of-3.safetensors"), HasSubstr("cannot be opened")));
}

TEST_F(CheckpointFolder, ADamagedManifestIsRefusedAndListed) {
  write(7, 1);
  edit_manifest("\"step\": 7", "\"step\": 8");
  EXPECT_THAT(error_of([&] { checkpoint::read_manifest(place / "step-000007"); }),
              HasSubstr("checksum"));
  ASSERT_EQ(checkpoint::list_checkpoints(place).size(), 1u);
  EXPECT_THAT(checkpoint::list_checkpoints(place)[0].damage, HasSubstr("manifest.json"));
  EXPECT_THAT(error_of([&] { checkpoint::find_checkpoint(place); }), HasSubstr("checksum"));
  edit_manifest("\"version\": 1", "\"version\": 9");
  EXPECT_THAT(error_of([&] { checkpoint::read_manifest(place / "step-000007"); }),
              HasSubstr("version 9"));
  edit_manifest("gradwire checkpoint", "something else");
  EXPECT_THAT(error_of([&] { checkpoint::read_manifest(place / "step-000007"); }),
              HasSubstr("is not a valid gradwire manifest"));
}

TEST_F(CheckpointFolder, TheManifestGoesThroughItsText) {
  write(7, 5, 2);
  const auto manifest = checkpoint::read_manifest(place / "step-000007");
  EXPECT_EQ(manifest.step, 7);
  EXPECT_EQ(manifest.sequence, 5);
  EXPECT_EQ(manifest.ranks(), 2);
  EXPECT_EQ(manifest.model, R"({"name":"mlp"})");
  ASSERT_EQ(manifest.rank_tensors[1].size(), 1u);
  EXPECT_EQ(manifest.rank_tensors[1][0].name, "random");
  EXPECT_EQ(checkpoint::manifest_text(
                checkpoint::parse_manifest(checkpoint::manifest_text(manifest), "there")),
            checkpoint::manifest_text(manifest));
  auto wrong = manifest;
  wrong.tensors[0].pieces.pop_back();
  EXPECT_THAT(
      error_of([&] { checkpoint::parse_manifest(checkpoint::manifest_text(wrong), "there"); }),
      AllOf(HasSubstr("there"), HasSubstr(manifest.tensors[0].name)));
  wrong = manifest;
  wrong.tensors[0].pieces[0].offset = 1 << 30;
  EXPECT_THAT(
      error_of([&] { checkpoint::parse_manifest(checkpoint::manifest_text(wrong), "there"); }),
      HasSubstr("within the"));
}

TEST(OptimizerStates, AreDistinguishedFromLayersOfThatName) {
  EXPECT_THAT(checkpoint::optimizer_states(
                  {"optimizer.weight", "optimizer.exp_avg.optimizer.weight", "optimizer.step.bias",
                   "a.b", "optimizer.step.a.b", "optimizer.exp_avg.a"}),
              ElementsAre("optimizer.exp_avg.optimizer.weight", "optimizer.step.a.b"));
}

TEST_F(CheckpointFolder, ConsolidatesIntoOneFileThatHoldsTheSame) {
  write(7, 1, 4);
  const checkpoint::CheckpointReader reader(place / "step-000007");
  const auto content = content_of_step(7);
  for (const bool optimizer : {false, true}) {
    const auto output = folder / "one.safetensors";
    const auto done = checkpoint::consolidate(reader, output, optimizer);
    EXPECT_EQ(done.tensors, optimizer ? 5u : 3u);
    EXPECT_EQ(done.bytes, std::filesystem::file_size(output));
    const auto header = checkpoint::read_safetensors_header(output);
    EXPECT_EQ(header.metadata.at("step"), "7");
    const checkpoint::InputFile file(output);
    for (const auto& tensor : header.tensors) {
      std::vector<float> values((tensor.end - tensor.begin) / 4);
      file.read(header.data_begin + tensor.begin, std::as_writable_bytes(std::span(values)));
      EXPECT_EQ(values, content.at(tensor.name)) << tensor.name;
    }
  }
}

TEST_F(CheckpointFolder, ConsolidatesNothingThatIsDamaged) {
  write(7, 1);
  const checkpoint::CheckpointReader reader(place / "step-000007");
  const auto file = place / "step-000007" / "rank-2-of-3.safetensors";
  std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
  bytes.seekp(-5, std::ios::end);
  bytes.put('x').flush();
  EXPECT_THAT(error_of([&] { checkpoint::consolidate(reader, folder / "one", true); }),
              HasSubstr("rank-2-of-3.safetensors"));
  EXPECT_FALSE(std::filesystem::exists(folder / "one"));
}

}  // namespace
}  // namespace gradwire::test
