#include "gradwire/data/idx.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include "gradwire/base/error.h"
#include "tests/support/idx_files.h"
#include "tests/support/temporary_folder.h"

namespace gradwire::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Idx : ::testing::Test {
  std::string error_for(const std::string& bytes) {
    write_file(folder / "file", bytes);
    try {
      read_idx(folder / "file");
    } catch (const Exception& error) {
      EXPECT_EQ(error.kind(), ErrorKind::invalid_argument);
      EXPECT_THAT(error.what(), HasSubstr((folder / "file").string()));
      return error.what();
    }
    return "no error";
  }

  void write_gzip(const std::string& name, const std::string& bytes) {
    const auto file = gzopen((folder / name).c_str(), "wb");
    ASSERT_NE(file, nullptr);
    gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size()));
    gzclose(file);
  }

  TemporaryFolder folder;
};

TEST_F(Idx, ReadsShapeAndValues) {
  write_file(folder / "a", idx_bytes({2, 3}, std::string("\0\1\2\3\4\xff", 6)));
  const auto array = read_idx(folder / "a");
  EXPECT_THAT(array.shape, ElementsAre(2, 3));
  EXPECT_THAT(array.values, ElementsAre(0, 1, 2, 3, 4, 255));
}

TEST_F(Idx, ReadsCompressedFiles) {
  write_gzip("a.gz", idx_bytes({300}, std::string(300, 'x')));
  const auto array = read_idx(folder / "a.gz");
  EXPECT_THAT(array.shape, ElementsAre(300));
  EXPECT_EQ(array.values, std::vector<std::uint8_t>(300, 'x'));
}

TEST_F(Idx, ReadsAnEmptyArray) {
  write_file(folder / "a", idx_bytes({0, 28}, ""));
  EXPECT_THAT(read_idx(folder / "a").shape, ElementsAre(0, 28));
}

TEST_F(Idx, RefusesWhatIsNotIdx) {
  EXPECT_THAT(error_for("hello, world"), HasSubstr("not an IDX file"));
  EXPECT_THAT(error_for(""), HasSubstr("not an IDX file"));
  EXPECT_THAT(error_for(std::string("\0\0\x0d\1\0\0\0\1abcd", 12)), HasSubstr("type 0x0d"));
}

TEST_F(Idx, RefusesFilesThatAreCutOffOrTooLong) {
  EXPECT_THAT(error_for(idx_bytes({2, 3}, "").substr(0, 9)), HasSubstr("header is truncated"));
  EXPECT_THAT(error_for(idx_bytes({2, 3}, "abcde")), HasSubstr("5 of 6 bytes"));
  EXPECT_THAT(error_for(idx_bytes({2, 3}, "abcdefg")), HasSubstr("more than the 6 bytes"));
}

TEST_F(Idx, RefusesADamagedHeaderWithoutAskingForItsMemory) {
  EXPECT_THAT(error_for(idx_bytes({0xffffffff, 0xffffffff, 0xffffffff}, "")),
              HasSubstr("impossible shape"));
  EXPECT_THAT(error_for(idx_bytes({0xffffffff, 16}, "abc")), HasSubstr("truncated"));
}

TEST_F(Idx, RefusesACompressedFileThatIsCutOff) {
  write_gzip("a.gz", idx_bytes({5000}, std::string(5000, 'x')));
  const auto size = std::filesystem::file_size(folder / "a.gz");
  std::filesystem::resize_file(folder / "a.gz", size - 9);
  EXPECT_THROW(read_idx(folder / "a.gz"), Exception);
}

TEST_F(Idx, AMissingFileIsAnError) {
  EXPECT_THROW(read_idx(folder / "nowhere"), Exception);
}

}  // namespace
}  // namespace gradwire::test
