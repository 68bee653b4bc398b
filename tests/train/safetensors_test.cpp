#include "gradwire/train/checkpoint/safetensors.h"

#include <algorithm>
#include <cstdlib>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/base/error.h"
#include "gradwire/torch/safetensors_types.h"
#include "tests/support/idx_files.h"
#include "tests/support/temporary_folder.h"
#include "tests/train/subprocess.h"

namespace gradwire::test {
namespace {

using ::testing::HasSubstr;

std::vector<NamedTensor> some_of_each_type() {
  return {{"bytes", torch::arange(5, torch::kUInt8)},
          {"f32", torch::linspace(-1, 1, 6).view({2, 3})},
          {"f64", torch::linspace(-1, 1, 3, torch::kFloat64)},
          {"bf16", torch::tensor({1.5, -2.0}).to(torch::kBFloat16)},
          {"f16", torch::tensor({1.5, -2.0}).to(torch::kFloat16)},
          {"flags", torch::tensor({true, false, true})},
          {"i64", torch::tensor({-1, 1}, torch::kInt64)},
          {"i32", torch::tensor({-3}, torch::kInt32)},
          {"transposed", torch::arange(6, torch::kFloat32).view({2, 3}).t()},
          {"nothing", torch::empty({0, 3})},
          {"scalar", torch::tensor(2.5)}};
}

TEST(Safetensors, RoundTrips) {
  const TemporaryFolder folder;
  save_safetensors(folder / "a.safetensors", some_of_each_type(), {{"format", "pt"}});
  const auto file = load_safetensors(folder / "a.safetensors");
  EXPECT_EQ(file.metadata.at("format"), "pt");
  ASSERT_EQ(file.tensors.size(), some_of_each_type().size());
  for (const auto& [name, tensor] : some_of_each_type()) {
    EXPECT_EQ(file.tensors.at(name).scalar_type(), tensor.scalar_type()) << name;
    EXPECT_TRUE(file.tensors.at(name).equal(tensor)) << name;
  }
}

/// Compares bytes: torch::equal does not support all of these types.
TEST(Safetensors, TheTypesOfFewOperationsRoundTrip) {
  const TemporaryFolder folder;
  const auto numbers = torch::tensor({0.0, 1.0, 2.0, 4.0, 112.0});
  for (const auto type : {torch::kUInt16, torch::kUInt32, torch::kUInt64, torch::kFloat8_e4m3fn,
                          torch::kFloat8_e4m3fnuz, torch::kFloat8_e5m2, torch::kFloat8_e5m2fnuz}) {
    const auto tensor = numbers.to(type);
    save_safetensors(folder / "a.safetensors", {{"x", tensor}});
    const auto read = load_safetensors(folder / "a.safetensors").tensors.at("x");
    EXPECT_EQ(read.scalar_type(), type);
    EXPECT_TRUE(std::ranges::equal(bytes_of(read), bytes_of(tensor))) << torch::toString(type);
  }
}

TEST(Safetensors, TheHeaderIsPaddedSoThatDataIsAligned) {
  const TemporaryFolder folder;
  for (const std::string name : {"a", "ab", "abc", "abcdefgh"}) {
    save_safetensors(folder / name, {{name, torch::ones({1})}});
    const auto bytes = content_of(folder / name);
    EXPECT_EQ(static_cast<unsigned char>(bytes[0]) % 8, 0);
    EXPECT_EQ(bytes.size() % 8, 4u);
  }
}

TEST(Safetensors, PythonReadsIt) {
  const auto* python = std::getenv("GRADWIRE_PYTHON");
  ASSERT_NE(python, nullptr) << "the build sets GRADWIRE_PYTHON to a Python with PyTorch";
  const TemporaryFolder folder;
  save_safetensors(folder / "a.safetensors", some_of_each_type());
  write_file(folder / "read.py",
             "import sys, torch\n"
             "from safetensors.torch import load_file\n"
             "t = load_file(sys.argv[1])\n"
             "assert len(t) == 11, sorted(t)\n"
             "assert t['f32'].dtype == torch.float32 and t['f32'].shape == (2, 3)\n"
             "assert torch.equal(t['f64'], torch.linspace(-1, 1, 3, dtype=torch.float64))\n"
             "assert t['bf16'].dtype == torch.bfloat16 and t['bf16'].tolist() == [1.5, -2.0]\n"
             "assert t['flags'].tolist() == [True, False, True]\n"
             "assert t['transposed'].tolist() == [[0, 3], [1, 4], [2, 5]]\n"
             "assert t['nothing'].shape == (0, 3) and t['scalar'].item() == 2.5\n"
             "print('all right')\n");
  const auto finished = run({python, folder / "read.py", folder / "a.safetensors"});
  EXPECT_EQ(finished.status, 0);
  EXPECT_THAT(finished.output, HasSubstr("all right"));
}

TEST(Safetensors, LeavesNothingButTheFile) {
  const TemporaryFolder folder;
  save_safetensors(folder / "new" / "a", {{"x", torch::ones({2})}});
  save_safetensors(folder / "new" / "a", {{"x", torch::zeros({2})}});
  const auto files = std::filesystem::directory_iterator(folder / "new");
  EXPECT_EQ(std::distance(begin(files), end(files)), 1);
  EXPECT_TRUE(load_safetensors(folder / "new" / "a").tensors.at("x").eq(0).all().item<bool>());
}

TEST(Safetensors, FailedWriteKeepsTheOldFile) {
  const TemporaryFolder folder;
  const auto x = torch::ones({2});
  save_safetensors(folder / "a", {{"x", x}});
  EXPECT_THROW(save_safetensors(folder / "a", {{"y", x}, {"y", x}}), Exception);
  EXPECT_THROW(save_safetensors(folder / "a", {{"y", x.to(torch::kComplexDouble)}}), Exception);
  EXPECT_THROW(save_safetensors("/proc/nowhere/a", {{"y", x}}), Exception);
  EXPECT_TRUE(load_safetensors(folder / "a").tensors.contains("x"));
}

struct DamagedSafetensors : ::testing::Test {
  std::string error_for(const std::string& bytes) {
    write_file(folder / "damaged", bytes);
    try {
      load_safetensors(folder / "damaged");
    } catch (const Exception& error) {
      EXPECT_EQ(error.kind(), ErrorKind::invalid_argument);
      EXPECT_THAT(error.what(), HasSubstr((folder / "damaged").string()));
      return error.what();
    }
    return "no error";
  }

  static std::string with_header(const std::string& header, const std::string& data) {
    std::string bytes(8, '\0');
    bytes[0] = static_cast<char>(header.size());
    return bytes + header + data;
  }

  TemporaryFolder folder;
};

TEST_F(DamagedSafetensors, IsRefused) {
  EXPECT_THAT(error_for("short"), HasSubstr("truncated"));
  EXPECT_THAT(error_for(std::string(8, '\xff')), HasSubstr("truncated"));
  EXPECT_THAT(error_for(with_header("[]", "")), HasSubstr("not a JSON object"));
  EXPECT_THAT(error_for(with_header("{", "")), HasSubstr("it is not JSON"));
  EXPECT_THAT(error_for(with_header(R"({"x":{"dtype":"F32"}})", "")), HasSubstr("damaged"));
  EXPECT_THAT(
      error_for(with_header(R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", "abcd")),
      HasSubstr("exceeds the end"));
  EXPECT_THAT(
      error_for(with_header(R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", "abcd")),
      HasSubstr("4 bytes, but its shape and type require 8"));
  EXPECT_THAT(
      error_for(with_header(R"({"x":{"dtype":"Q9","shape":[1],"data_offsets":[0,4]}})", "abcd")),
      HasSubstr("type Q9"));
  EXPECT_THAT(
      error_for(with_header(R"({"x":{"dtype":"U8","shape":[-4],"data_offsets":[0,4]}})", "abcd")),
      HasSubstr("it must be a list of whole numbers from 0"));
}

}  // namespace
}  // namespace gradwire::test
