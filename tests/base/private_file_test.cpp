#include <filesystem>
#include <fstream>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gradwire/base/file.h"
#include "tests/support/temporary_folder.h"

namespace gradwire {
namespace {

using test::TemporaryFolder;
using testing::AllOf;
using testing::HasSubstr;

constexpr std::size_t kMaxBytes = 100;

std::string written(const TemporaryFolder& folder, mode_t mode) {
  const std::string path = folder / "file";
  std::ofstream(path) << "content";
  EXPECT_EQ(::chmod(path.c_str(), mode), 0);
  return path;
}

std::string refusal_of(const std::string& path) {
  const auto content = read_private_file(path, kMaxBytes);
  if (content) return "it was read";
  EXPECT_EQ(content.error().kind, ErrorKind::refused);
  return content.error().message;
}

TEST(PrivateFile, ReadsFilesOfThisUserOnly) {
  const TemporaryFolder folder;
  for (const mode_t mode : {0600, 0400, 0700}) {
    EXPECT_EQ(read_private_file(written(folder, mode), kMaxBytes)->content, "content");
  }
  EXPECT_EQ(read_private_file(folder / "file", 3)->content, "con");
}

TEST(PrivateFile, MissingFilesAreNoError) {
  const TemporaryFolder folder;
  const auto file = read_private_file(folder / "none", kMaxBytes);
  ASSERT_TRUE(file);
  EXPECT_FALSE(file->exists);
}

TEST(PrivateFile, AnyPermissionOfGroupOrOthersIsRefused) {
  const TemporaryFolder folder;
  for (const mode_t mode : {0640, 0620, 0610, 0604, 0602, 0601}) {
    EXPECT_THAT(refusal_of(written(folder, mode)),
                AllOf(HasSubstr(fmt::format("mode {:o}", mode)), HasSubstr("(mode 600)")));
  }
}

TEST(PrivateFile, LinksFoldersAndFifosAreRefusedWithoutWaiting) {
  const TemporaryFolder folder;
  std::filesystem::create_symlink(written(folder, 0600), folder / "link");
  EXPECT_THAT(refusal_of(folder / "link"), HasSubstr("symbolic link"));
  EXPECT_THAT(refusal_of(folder.path()), HasSubstr("is not a regular file"));
  ASSERT_EQ(::mkfifo((folder / "fifo").c_str(), 0600), 0);
  EXPECT_THAT(refusal_of(folder / "fifo"), HasSubstr("is not a regular file"));
}

TEST(PrivateFile, FilesOfAnotherUserAreRefused) {
  // Without permission to change owners, uses a file of another user that always exists.
  const TemporaryFolder folder;
  const std::string given = written(folder, 0600);
  const bool root = ::chown(given.c_str(), ::geteuid() + 1, static_cast<gid_t>(-1)) == 0;
  EXPECT_THAT(refusal_of(root ? given : "/etc/passwd"), HasSubstr("belongs to user"));
}

}  // namespace
}  // namespace gradwire
