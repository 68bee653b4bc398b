#include "gradwire/data/fashion_mnist.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/base/error.h"
#include "tests/support/idx_files.h"
#include "tests/support/temporary_folder.h"

namespace gradwire::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string error_of(const std::filesystem::path& folder) {
  try {
    load_fashion_mnist(Split::train, folder);
  } catch (const Exception& error) {
    return error.what();
  }
  return "no error";
}

TEST(FashionMnist, ReadsTheWholeDataSetOfDebian) {
  const auto train = load_fashion_mnist(Split::train);
  EXPECT_EQ(train.images.sizes(), (at::IntArrayRef{60000, 1, 28, 28}));
  const auto test = load_fashion_mnist(Split::test);
  EXPECT_EQ(test.size(), 10000);
  EXPECT_EQ(test.labels.bincount().min().item<int>(), 1000);
  EXPECT_EQ(test.labels[0].item<int>(), 9) << "the first test image is an ankle boot";
}

TEST(FashionMnist, TrainingImagesAreStandardised) {
  const auto train = load_fashion_mnist(Split::train);
  SampledBatch all;
  for (std::int64_t i = 0; i < train.size(); i += 10) all.samples.push_back(i);
  const auto batch = train.batch(all);
  EXPECT_NEAR(batch.inputs.mean().item<double>(), 0, 0.02);
  EXPECT_NEAR(batch.inputs.std().item<double>(), 1, 0.02);
}

TEST(FashionMnist, ReadsAFolderOfTheUser) {
  const TemporaryFolder folder;
  write_image_data(folder.path(), 20, 5);
  const auto train = load_fashion_mnist(Split::train, folder.path());
  EXPECT_EQ(train.size(), 20);
  const auto batch = train.batch({.samples = {3, 0, 3}, .own = 2});
  EXPECT_EQ(batch.inputs.sizes(), (at::IntArrayRef{3, 1, 28, 28}));
  EXPECT_TRUE(batch.targets.equal(torch::tensor({1, 0, 1}, torch::kInt64)));
  EXPECT_EQ(batch.own, 2);
  const auto white = batch.inputs.max();
  EXPECT_TRUE(batch.inputs[0][0].slice(0, 2, 4).eq(white).all().item<bool>());
  EXPECT_TRUE(batch.inputs[1][0].slice(0, 0, 2).eq(white).all().item<bool>());
  EXPECT_EQ(batch.inputs.eq(white).sum().item<int>(), 3 * 2 * 28);
}

TEST(FashionMnist, AMissingFileIsAnErrorThatNamesThePackage) {
  const TemporaryFolder folder;
  EXPECT_THAT(error_of(folder.path()),
              AllOf(HasSubstr("train-images-idx3-ubyte[.gz]"), HasSubstr(folder.path().string()),
                    HasSubstr("dataset-fashion-mnist"), HasSubstr("--data PATH")));
}

TEST(FashionMnist, FilesThatDoNotFitTogetherAreRefused) {
  const TemporaryFolder folder;
  write_image_data(folder.path(), 20, 5);
  write_file(folder / "train-labels-idx1-ubyte", idx_bytes({3}, "\1\2\3"));
  EXPECT_THAT(error_of(folder.path()), HasSubstr("3 labels for 20 images"));
  write_file(folder / "train-labels-idx1-ubyte", idx_bytes({20}, std::string(20, '\x0a')));
  EXPECT_THAT(error_of(folder.path()), HasSubstr("outside 0 .. 9"));
  write_file(folder / "train-images-idx3-ubyte", idx_bytes({20, 2, 2}, std::string(80, 'x')));
  EXPECT_THAT(error_of(folder.path()), HasSubstr("not N x 28 x 28"));
}

}  // namespace
}  // namespace gradwire::test
