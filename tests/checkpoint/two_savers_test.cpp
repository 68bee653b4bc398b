#include <chrono>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <functional>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gradwire/base/error.h"
#include "gradwire/checkpoint/checkpoint_folder.h"
#include "tests/support/mortal_disk.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/written_checkpoint.h"

/// Two jobs that save into one folder, as real processes.
namespace gradwire::test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

/// A child process that runs `act`, and exits with 0 unless it throws.
class Process {
 public:
  explicit Process(const std::function<void()>& act) : id_(::fork()) {
    if (id_ != 0) return;
    try {
      act();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "process %d: %s\n", ::getpid(), error.what());
      ::_exit(1);
    }
    ::_exit(0);
  }
  ~Process() { end(SIGKILL); }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  /// Returns 0, or minus the signal's number.
  int wait() {
    int status = 0;
    ::waitpid(std::exchange(id_, -1), &status, 0);
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
  }

  void end(int signal) {
    if (id_ <= 0) return;
    ::kill(id_, signal);
    wait();
  }

 private:
  pid_t id_;
};

/// A signal from one process to another, used once.
struct Signal {
  Signal() { EXPECT_EQ(::pipe(ends), 0); }
  ~Signal() {
    ::close(ends[0]);
    ::close(ends[1]);
  }
  void give() const { EXPECT_EQ(::write(ends[1], "x", 1), 1); }
  void await() const {
    char byte = 0;
    EXPECT_EQ(::read(ends[0], &byte, 1), 1);
  }
  int ends[2] = {-1, -1};
};

/// Pauses once before it renames a checkpoint, until it is told to continue.
class PausingDisk final : public checkpoint::Disk {
 public:
  PausingDisk(const Signal& reached, const Signal& go_on) : reached_(reached), go_on_(go_on) {}
  void rename(const std::filesystem::path& from, const std::filesystem::path& to) override {
    if (from.extension() == ".partial" && !std::exchange(paused_, true)) {
      reached_.give();
      go_on_.await();
    }
    checkpoint::Disk::rename(from, to);
  }

 private:
  const Signal& reached_;
  const Signal& go_on_;
  bool paused_ = false;
};

struct TwoSavers : ::testing::Test {
  std::vector<std::string> names(const std::string& extension = "") {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(place)) {
      const auto path = entry.path().filename();
      const bool hidden = path.string().starts_with(".");
      if (extension.empty() ? !hidden : path.extension() == extension) names.push_back(path);
    }
    return names;
  }

  void expect_all_whole() {
    for (const auto& found : checkpoint::list_checkpoints(place)) {
      EXPECT_EQ(found.damage, "");
      EXPECT_EQ(read_checkpoint(found.path), content_of_step(found.step)) << found.path;
    }
  }

  TemporaryFolder folder;
  std::filesystem::path place = folder / "checkpoints";
  checkpoint::Disk disk;
};

TEST_F(TwoSavers, DoNotRemovePartialCheckpointsOfEachOther) {
  const Signal reached, go_on;
  Process slow([&] {
    PausingDisk pausing(reached, go_on);
    write_checkpoint(pausing, place, 1, 3, 1);
  });
  reached.await();
  write_checkpoint(disk, place, 2, 3, 2);
  EXPECT_THAT(names(), ElementsAre("step-000002"));
  go_on.give();
  EXPECT_EQ(slow.wait(), 0);
  EXPECT_THAT(names(), UnorderedElementsAre("step-000001", "step-000002"));
  expect_all_whole();
}

TEST_F(TwoSavers, SavingTheSameStepUseTwoNames) {
  const Signal reached, go_on;
  Process slow([&] {
    PausingDisk pausing(reached, go_on);
    write_checkpoint(pausing, place, 5, 3, 1);
  });
  reached.await();
  write_checkpoint(disk, place, 5, 2, 1);
  go_on.give();
  EXPECT_EQ(slow.wait(), 0);
  EXPECT_THAT(names(), UnorderedElementsAre("step-000005", "step-000005.2"));
  expect_all_whole();
}

TEST_F(TwoSavers, RemoveLeftoversOfAKilledSaver) {
  const Signal reached, go_on;
  Process killed([&] {
    PausingDisk pausing(reached, go_on);
    write_checkpoint(pausing, place, 1, 3, 1);
  });
  reached.await();
  killed.end(SIGKILL);
  EXPECT_EQ(names(".partial").size(), 1u);
  write_checkpoint(disk, place, 2, 3, 2);
  EXPECT_THAT(names(".partial"), IsEmpty());
  EXPECT_THAT(names(".lock"), IsEmpty());
  EXPECT_THAT(names(), ElementsAre("step-000002"));
}

TEST_F(TwoSavers, KeepLeftoversOfAnotherHostUntilItIsSilent) {
  disk.make_folders(place / ".step-000001.feed.partial");
  std::ofstream(place / ".step-000001.feed.lock") << "another-boot another-host 17\n";
  write_checkpoint(disk, place, 2, 3, 2);
  EXPECT_EQ(names(".partial").size(), 1u);
  const auto long_ago = std::filesystem::file_time_type::clock::now() - std::chrono::hours(1);
  std::filesystem::last_write_time(place / ".step-000001.feed.lock", long_ago);
  write_checkpoint(disk, place, 3, 3, 3);
  EXPECT_EQ(names(".partial").size(), 1u) << "the folder has changed a moment ago";
  std::filesystem::last_write_time(place / ".step-000001.feed.partial", long_ago);
  write_checkpoint(disk, place, 4, 3, 4);
  EXPECT_THAT(names(".partial"), IsEmpty());
  EXPECT_THAT(names(".lock"), IsEmpty());
}

TEST_F(TwoSavers, LeaveWholeCheckpointsWithoutSynchronization) {
  constexpr int kSaves = 40;
  const auto save_all = [&](int first) {
    return [this, first] {
      for (int i = 0; i < kSaves; ++i) write_checkpoint(disk, place, first + i % 5, 2, i);
    };
  };
  Process one(save_all(1));
  Process other(save_all(3));
  EXPECT_EQ(one.wait(), 0);
  EXPECT_EQ(other.wait(), 0);
  EXPECT_EQ(checkpoint::list_checkpoints(place).size(), 2u * kSaves);
  expect_all_whole();
  EXPECT_THAT(names(".partial"), IsEmpty());
  EXPECT_THAT(names(".lock"), IsEmpty());
}

TEST_F(TwoSavers, MayRemoveTheSameOlderOnes) {
  constexpr int kSaves = 40;
  const auto save_all = [&](int first) {
    return [this, first] {
      for (int i = 0; i < kSaves; ++i) {
        write_checkpoint(disk, place, first + i, 2, i);
        prune_checkpoints(disk, place, 20);
      }
    };
  };
  Process one(save_all(1));
  Process other(save_all(100));
  EXPECT_EQ(one.wait(), 0);
  EXPECT_EQ(other.wait(), 0);
  expect_all_whole();
  EXPECT_THAT(names(".old"), IsEmpty());
  EXPECT_EQ(names().size(), 20u);
}

}  // namespace
}  // namespace gradwire::test
