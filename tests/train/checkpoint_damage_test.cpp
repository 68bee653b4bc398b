#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gradwire/base/random.h"
#include "gradwire/checkpoint/checkpoint_folder.h"
#include "gradwire/checkpoint/checkpoint_reader.h"
#include "gradwire/checkpoint/disk.h"
#include "tests/support/mortal_disk.h"
#include "tests/train/checkpoint_fixture.h"

/// Checkpoints that are damaged, or cannot be written.
namespace gradwire::test {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST_F(CheckpointTest, DamageIsTheSameErrorOnAllRanks) {
  save_on(4);
  const auto file = checkpoint::find_checkpoint(place) / checkpoint::shard_name(2, 4);
  {
    std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
    bytes.seekp(-20, std::ios::end);
    bytes.put('\x55');
  }
  EXPECT_THAT(errors_of_loading(3), Each(AllOf(HasSubstr("rank-2-of-4"), HasSubstr("CRC-32C"))));
  std::filesystem::resize_file(file, 1000);
  EXPECT_THAT(errors_of_loading(3), Each(AllOf(HasSubstr("rank-2-of-4"), HasSubstr("damaged"))));
}

TEST_F(CheckpointTest, ADamagedManifestIsNotPassedOverOnAnyRank) {
  save_on(2);
  save_on(3);
  const auto older = place / "step-000003";
  const auto newest = place / "step-000003.2";
  ASSERT_EQ(checkpoint::find_checkpoint(place), newest);
  std::filesystem::resize_file(newest / checkpoint::kManifestName, 700);
  EXPECT_THAT(errors_of_loading(3),
              Each(AllOf(HasSubstr("rank 0: " + (newest / checkpoint::kManifestName).string()),
                         HasSubstr("remove " + newest.string()), HasSubstr(older.string()))));
  place = older;  // The message suggests this.
  EXPECT_THAT(errors_of_loading(3), Each(""));
}

/// Loses a file of the checkpoint when it is renamed, as a failing disk of another saver.
class LosingDisk final : public checkpoint::Disk {
 public:
  void rename(const std::filesystem::path& from, const std::filesystem::path& to) override {
    checkpoint::Disk::rename(from, to);
    if (from.extension() == ".partial") std::filesystem::remove(to / checkpoint::shard_name(1, 2));
  }
};

TEST_F(CheckpointTest, LostFilesAreAnErrorAndKeepOlderCheckpoints) {
  save_on(2);
  LosingDisk losing;
  const auto errors = errors_on_threads(2, [&](const auto& group) {
    const auto model = trained(group, adam(), 4);
    save_checkpoint(model->run(), 4, {.folder = place, .keep = 1, .disk = &losing});
  });
  EXPECT_THAT(errors,
              Each(AllOf(HasSubstr("step-000004/rank-1-of-2"), HasSubstr("is incomplete"))));
  EXPECT_NO_THROW(checkpoint::CheckpointReader(place / "step-000003").verify());
  run_on_threads(2, [&](const auto& group) {
    const auto model = trained(group, adam(), 5);
    save_checkpoint(model->run(), 5, {.folder = place, .keep = 2});
  });
  EXPECT_TRUE(std::filesystem::exists(place / "step-000003")) << "step 4 does not count";
  EXPECT_NO_THROW(checkpoint::CheckpointReader(place / "step-000005").verify());
}

/// Records flushes and removals, in order.
class TellingDisk final : public checkpoint::Disk {
 public:
  void flush_folder(const std::filesystem::path& path) override {
    told.push_back("flush " + path.filename().string());
    checkpoint::Disk::flush_folder(path);
  }
  void remove(const std::filesystem::path& path) override {
    if (path.parent_path().extension() == ".old") told.push_back("remove from an .old");
    checkpoint::Disk::remove(path);
  }
  std::vector<std::string> told;
};

TEST_F(CheckpointTest, NamesAreOnTheDiskBeforeWhatDependsOnThem) {
  TellingDisk disk;
  place = folder / "new" / "out" / "checkpoints";
  run_on_threads(1, [&](const auto& group) {
    const auto model = trained(group, adam(), 1);
    save_checkpoint(model->run(), 1, {.folder = place, .keep = 1, .disk = &disk});
    const auto first = folder.path().filename().string();
    EXPECT_THAT(std::vector(disk.told.begin(), disk.told.begin() + 3),
                ElementsAre("flush " + first, "flush new", "flush out"));
    disk.told.clear();
    save_checkpoint(model->run(), 2, {.folder = place, .keep = 1, .disk = &disk});
  });
  const auto removed = std::ranges::find(disk.told, "remove from an .old");
  ASSERT_NE(removed, disk.told.end());
  EXPECT_EQ(std::count(disk.told.begin(), removed, "flush checkpoints"), 2)
      << "once for the new one's name, once for that of the old one";
}

TEST_F(CheckpointTest, AFullDiskOnOneRankIsAnErrorOnAllAndLeavesTheOldOne) {
  const auto saved = save_on(2);
  MortalDisk full(4, false);
  const auto errors = errors_on_threads(2, [&](const auto& group) {
    const auto model = trained(group, adam(), 4);
    auto* disk = group->getRank() == 1 ? &full : nullptr;
    save_checkpoint(model->run(), 4, {.folder = place, .keep = 1, .disk = disk});
  });
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("rank 1"), HasSubstr("the disk is full"))));
  EXPECT_EQ(checkpoint::list_checkpoints(place).size(), 1u);
  const auto entries = std::filesystem::directory_iterator(place);
  EXPECT_EQ(std::distance(begin(entries), end(entries)), 1) << "nothing is left over";
}

/// A process in which two ranks save four checkpoints, and which dies at the given system call.
int save_until_killed(const std::filesystem::path& place, std::int64_t call) {
  const auto child = ::fork();
  if (child == 0) {
    MortalDisk disk(call, true);
    run_on_threads(2, [&](const auto& group) {
      torch::nn::Sequential model(torch::nn::Linear(90, 90));
      DataParallel parallel(model, {.process_group = group});
      ReplicatedModel state(*parallel.module(), parallel.core());
      for (int step = 1; step <= 4; ++step) {
        for (const auto& piece : state.pieces(false)) piece.data.fill_(step);
        save_checkpoint({.group = group, .model = state}, step,
                        {.folder = place, .keep = 2, .disk = &disk});
      }
    });
    ::_exit(static_cast<int>(std::min<std::int64_t>(disk.calls(), 255)));
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

TEST_F(CheckpointTest, KilledAtTwoHundredRandomPointsTheLastCompleteOneIsWhole) {
  const int calls = save_until_killed(folder / "whole", -1);
  ASSERT_GT(calls, 60);
  ASSERT_LT(calls, 255);
  Random random(11);
  int with_some = 0;
  for (int point = 0; point < 200; ++point) {
    const auto here = folder / std::to_string(point);
    // Either rank may create the folder, so the number of calls varies by a few.
    const auto call = random.between(0, calls - 5);
    ASSERT_EQ(save_until_killed(here, call), -SIGKILL) << "call " << call;
    for (const auto& found : checkpoint::list_checkpoints(here)) {
      ASSERT_EQ(found.damage, "") << "call " << call;
      const checkpoint::CheckpointReader reader(found.path);
      ASSERT_NO_THROW(reader.verify());
      std::vector<float> weights(8100);
      reader.read(reader.manifest().tensors.at(0), 0, std::as_writable_bytes(std::span(weights)));
      EXPECT_THAT(weights, Each(static_cast<float>(found.step))) << "call " << call;
    }
    with_some += checkpoint::list_checkpoints(here).empty() ? 0 : 1;
    std::filesystem::remove_all(here);
    if (HasFailure()) return;
  }
  EXPECT_GT(with_some, 100);
}

}  // namespace
}  // namespace gradwire::test
