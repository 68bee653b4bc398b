#include <thread>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gradwire/base/error.h"
#include "gradwire/base/file.h"
#include "tests/support/temporary_folder.h"

namespace gradwire {
namespace {

using test::content_of;

class AtomicFileTest : public testing::Test {
 protected:
  const test::TemporaryFolder folder_;
};

TEST_F(AtomicFileTest, AppearsWhenCommitted) {
  const auto path = folder_ / "new/folder/file";
  AtomicFile file(path);
  file.write("whole", 5);
  EXPECT_FALSE(std::filesystem::exists(path));
  file.commit();
  EXPECT_EQ(content_of(path), "whole");
}

TEST_F(AtomicFileTest, KeepsTheOldFileUnlessCommitted) {
  const auto path = folder_ / "file";
  write_file(path, "before");
  { AtomicFile(path).write("half", 4); }
  EXPECT_EQ(content_of(path), "before");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_.path()), {}), 1);
}

TEST_F(AtomicFileTest, AFolderThatCannotBeMadeIsTheReason) {
  write_file(folder_ / "file", "");
  try {
    AtomicFile file(folder_ / "file/folder/name");
    FAIL();
  } catch (const Exception& error) {
    EXPECT_EQ(error.what(), (folder_ / "file/folder/name").string() +
                                " cannot be written: Not a directory (its folder " +
                                (folder_ / "file/folder").string() + " cannot be created)");
  }
}

TEST_F(AtomicFileTest, AFolderIsRefusedBeforeAnythingIsWritten) {
  for (const auto& path : {folder_.path(), folder_ / "not/there/"}) {
    try {
      AtomicFile file(path);
      FAIL() << path;
    } catch (const Exception& error) {
      EXPECT_EQ(error.kind(), ErrorKind::system);
      EXPECT_EQ(error.what(), path.string() + " cannot be written: Is a directory");
    }
  }
}

TEST_F(AtomicFileTest, CheckingKeepsTheOldFile) {
  const auto path = folder_ / "file";
  write_file(path, "before");
  check_writable(path);
  EXPECT_EQ(content_of(path), "before");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_.path()), {}), 1);
  EXPECT_THROW(check_writable("/dev/null/x"), Exception);
  const auto pipe = folder_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  check_writable(pipe);  // Otherwise it would wait for a reader.
}

TEST_F(AtomicFileTest, WritesToAPipeWithoutTakingItsPlace) {
  const auto path = folder_ / "pipe";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  std::string read;
  std::thread reader([&] { read = content_of(path); });
  write_file(path, "through");
  reader.join();
  EXPECT_EQ(read, "through");
  EXPECT_TRUE(std::filesystem::is_fifo(path));
}

TEST_F(AtomicFileTest, SymbolicLinksAreFollowed) {
  write_file(folder_ / "file", "before");
  std::filesystem::create_symlink(folder_ / "file", folder_ / "link");
  write_file(folder_ / "link", "after");
  EXPECT_TRUE(std::filesystem::is_symlink(folder_ / "link"));
  EXPECT_EQ(content_of(folder_ / "file"), "after");
}

TEST_F(AtomicFileTest, WritesToStandardOutputThatIsAFile) {
  const int before = ::dup(STDOUT_FILENO);
  const UniqueFd file(::open((folder_ / "out").c_str(), O_WRONLY | O_CREAT, 0600));
  ASSERT_EQ(::dup2(file.get(), STDOUT_FILENO), STDOUT_FILENO);
  write_file("/dev/stdout", "said");
  ::dup2(before, STDOUT_FILENO);
  ::close(before);
  EXPECT_TRUE(std::filesystem::is_symlink("/dev/stdout"));
  EXPECT_EQ(content_of(folder_ / "out"), "said");
}

TEST_F(AtomicFileTest, ErrorsNameTheReason) {
  try {
    write_file("/proc/nowhere/file", "text");
    FAIL() << "it was written";
  } catch (const Exception& error) {
    EXPECT_EQ(error.kind(), ErrorKind::system);
    EXPECT_NE(std::string(error.what()).find("/proc/nowhere/file cannot be written: "),
              std::string::npos);
  }
}

}  // namespace
}  // namespace gradwire
