#include "gradwire/data/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include "gradwire/base/error.h"
#include "gradwire/data/data_set.h"
#include "tests/support/idx_files.h"
#include "tests/support/temporary_folder.h"

namespace gradwire::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// 'a', 'b', 'c', ... so that every byte reveals its position.
std::string alphabet(std::size_t size) {
  std::string text;
  for (std::size_t i = 0; i < size; ++i) text += static_cast<char>('a' + i % 26);
  return text;
}

std::string text_error(const std::filesystem::path& path) {
  try {
    load_text(Split::train, 4, path);
  } catch (const Exception& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid_argument);
    return error.what();
  }
  return "no error";
}

TEST(Text, TargetsAreTheBytesAfter) {
  const TemporaryFolder folder;
  write_file(folder / "text", alphabet(101));
  const auto data = load_text(Split::train, 4, folder / "text");
  const auto batch = data.batch({.samples = {0, 9}, .own = 1});
  EXPECT_TRUE(batch.inputs.equal(
      torch::tensor({{'a', 'b', 'c', 'd'}, {'o', 'p', 'q', 'r'}}, torch::kInt64)));
  EXPECT_TRUE(batch.targets.equal(
      torch::tensor({{'b', 'c', 'd', 'e'}, {'p', 'q', 'r', 's'}}, torch::kInt64)));
  EXPECT_EQ(batch.own, 1);
}

TEST(Text, EveryTenthSampleIsForTestingAndNoneForBoth) {
  const TemporaryFolder folder;
  write_file(folder / "text", alphabet(103));  // 25 samples of 4, and 2 bytes left over.
  const auto train = load_text(Split::train, 4, folder / "text");
  const auto test = load_text(Split::test, 4, folder / "text");
  EXPECT_EQ(train.size(), 23);
  EXPECT_EQ(test.size(), 2);
  EXPECT_EQ(test.batch({.samples = {0}}).inputs[0][0].item<int>(), 'a' + 9 * 4 % 26);
}

TEST(Text, ReadsWhatGzipCompressed) {
  const TemporaryFolder folder;
  const auto path = folder / "text.gz";
  const auto text = alphabet(1000);
  const auto file = gzopen(path.c_str(), "wb");
  ASSERT_EQ(gzwrite(file, text.data(), 1000), 1000);
  gzclose(file);
  write_file(folder / "text", text);
  const auto compressed = load_text(Split::train, 7, path);
  EXPECT_TRUE(compressed.windows.equal(load_text(Split::train, 7, folder / "text").windows));
}

TEST(Text, IsADataSet) {
  const TemporaryFolder folder;
  write_file(folder / "text", alphabet(101));
  const auto data = make_data_set(load_text(Split::test, 4, folder / "text"));
  EXPECT_EQ(data.size, 2);
  EXPECT_EQ(data.batch({.samples = {1, 1, 0}}).targets.sizes(), (at::IntArrayRef{3, 4}));
}

TEST(Text, UnreadableFileIsAnErrorThatNamesThePackage) {
  const TemporaryFolder folder;
  EXPECT_THAT(text_error(folder / "none"),
              AllOf(HasSubstr("none"), HasSubstr("dict-jargon"), HasSubstr("--data PATH")));
  EXPECT_THAT(text_error(folder.path()), HasSubstr("dict-jargon"));
  write_file(folder / "short", alphabet(40));
  EXPECT_THAT(text_error(folder / "short"), HasSubstr("40 bytes, too few for 10 samples of 4"));
}

TEST(Text, ADamagedFileIsRefused) {
  const TemporaryFolder folder;
  const auto path = folder / "text.gz";
  const auto file = gzopen(path.c_str(), "wb");
  ASSERT_EQ(gzwrite(file, alphabet(5000).data(), 5000), 5000);
  gzclose(file);
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 20);
  EXPECT_THAT(text_error(path), AllOf(HasSubstr("text.gz"), HasSubstr("truncated")));
}

}  // namespace
}  // namespace gradwire::test
