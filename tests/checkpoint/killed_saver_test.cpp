#include <fstream>
#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gradwire/base/random.h"
#include "gradwire/checkpoint/checkpoint_folder.h"
#include "tests/support/mortal_disk.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/written_checkpoint.h"

namespace gradwire::test {
namespace {

using ::testing::ElementsAre;

constexpr int kRanks = 4;
constexpr int kSteps = 4;
constexpr int kKeep = 2;

/// Saves after each of four steps; reports each complete checkpoint to `said(step)`.
template <class Said>
void save_all(checkpoint::Disk& disk, const std::filesystem::path& folder, const Said& said) {
  for (int step = 1; step <= kSteps; ++step) {
    write_checkpoint(disk, folder, step, kRanks, step);
    said(step);
    prune_checkpoints(disk, folder, kKeep);
  }
}

/// Returns the last step that a process, killed at that call, has reported complete; 0: none.
int step_when_killed(const std::filesystem::path& folder, std::int64_t call) {
  int said[2];
  EXPECT_EQ(::pipe(said), 0);
  const auto child = ::fork();
  if (child == 0) {
    MortalDisk disk(call, true);
    save_all(disk, folder, [&](int step) {
      const char byte = static_cast<char>(step);
      if (::write(said[1], &byte, 1) != 1) ::_exit(1);
    });
    ::_exit(0);
  }
  ::close(said[1]);
  char step = 0;
  while (::read(said[0], &step, 1) == 1) {
  }
  ::close(said[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << "call " << call;
  return step;
}

/// Expects all remaining checkpoints to be intact, and saving to continue.
void expect_whole(const std::filesystem::path& folder, int said, std::int64_t call) {
  const auto found = checkpoint::list_checkpoints(folder);
  ASSERT_FALSE(said > 0 && found.empty()) << "call " << call;
  for (const auto& checkpoint : found) {
    ASSERT_EQ(checkpoint.damage, "") << "call " << call;
    EXPECT_EQ(read_checkpoint(checkpoint.path), content_of_step(checkpoint.step));
  }
  if (said > 0) {
    // It may have been killed between completing one and reporting it.
    EXPECT_GE(found.back().step, said) << "call " << call;
    EXPECT_LE(found.back().step, said + 1) << "call " << call;
    EXPECT_GE(std::ssize(found), std::min(said, kKeep)) << "call " << call;
  }
}

/// Returns true if a saver was killed before it had written to its lock. Such a lock stays for a
/// while, because it might belong to a saver that is about to write to it.
bool is_begun_lock(const std::filesystem::path& path) {
  std::string text;
  std::getline(std::ifstream(path), text, '\0');
  return path.extension() == ".lock" && !text.ends_with('\n');
}

/// All entries except such locks.
std::vector<std::filesystem::path> entries_in(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> entries;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (!is_begun_lock(entry.path())) entries.push_back(entry.path().filename());
  }
  return entries;
}

std::int64_t calls_of_all() {
  const TemporaryFolder folder;
  MortalDisk disk(-1, false);
  save_all(disk, folder / "checkpoints", [](int) {});
  return disk.calls();
}

TEST(KilledSaver, LeavesTheLastCompleteCheckpointWholeAtTwoHundredRandomPoints) {
  const auto calls = calls_of_all();
  ASSERT_GT(calls, 100);
  Random random(7);
  for (int point = 0; point < 200; ++point) {
    const TemporaryFolder folder;
    const auto place = folder / "checkpoints";
    const auto call = random.between(0, calls - 1);
    const int said = step_when_killed(place, call);
    expect_whole(place, said, call);
    // The next saver continues, and cleans up.
    MortalDisk disk(-1, false);
    write_checkpoint(disk, place, 9, kRanks, 9);
    prune_checkpoints(disk, place, 1);
    EXPECT_EQ(read_checkpoint(checkpoint::find_checkpoint(place)), content_of_step(9));
    EXPECT_THAT(entries_in(place), ElementsAre("step-000009")) << "call " << call;
    if (HasFailure()) return;
  }
}

TEST(KilledSaver, PartialCheckpointIsDetected) {
  const TemporaryFolder folder;
  MortalDisk disk(-1, false);
  write_checkpoint(disk, folder.path(), 1, kRanks, 1);
  std::filesystem::resize_file(folder.path() / "step-000001" / checkpoint::shard_name(2, kRanks),
                               100);
  EXPECT_THROW(read_checkpoint(folder / "step-000001"), Exception);
}

TEST(FullDisk, IsAnErrorAtEveryCallAndLeavesTheOldCheckpoints) {
  const auto calls = calls_of_all();
  for (std::int64_t call = 0; call < calls; ++call) {
    const TemporaryFolder folder;
    const auto place = folder / "checkpoints";
    int said = 0;
    MortalDisk disk(call, false);
    EXPECT_THROW(save_all(disk, place, [&](int step) { said = step; }), Exception);
    expect_whole(place, said, call);
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace gradwire::test
