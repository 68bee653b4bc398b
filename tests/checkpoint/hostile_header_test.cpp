#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/base/bytes.h"
#include "gradwire/base/random.h"
#include "gradwire/checkpoint/safetensors_header.h"

/// Malformed headers of safetensors files.
namespace gradwire::test {
namespace {

using ::testing::HasSubstr;

std::string file_with(const std::string& json) {
  std::string length(8, '\0');
  store_little_endian<std::uint64_t>(reinterpret_cast<std::byte*>(length.data()), json.size());
  return length + json;
}

/// Returns the error for a file with that header and `data` bytes after it; empty if it is read.
std::string error_of(const std::string& json, std::uint64_t data = 16) {
  const auto bytes = file_with(json);
  const auto header = checkpoint::parse_safetensors_header(bytes, bytes.size() + data);
  return header ? "" : header.error().message;
}

std::string one(const std::string& type, const std::string& shape, const std::string& offsets) {
  return R"({"x":{"dtype":)" + type + R"(,"shape":)" + shape + R"(,"data_offsets":)" + offsets +
         "}}";
}

TEST(HostileHeader, ValidHeaderIsRead) {
  EXPECT_EQ(error_of("{}"), "");
  EXPECT_EQ(error_of(one(R"("F32")", "[2,2]", "[0,16]")), "");
  EXPECT_EQ(error_of(one(R"("F32")", "[0,2]", "[16,16]")), "");
  EXPECT_EQ(error_of(R"({"__metadata__":{"[[[{{{\"":"]"}})"), "");
}

TEST(HostileHeader, LengthsLieWithinTheFile) {
  const auto whole = file_with("{}");
  for (std::size_t length = 0; length < whole.size(); ++length) {
    EXPECT_FALSE(checkpoint::parse_safetensors_header(whole.substr(0, length), length)) << length;
    EXPECT_FALSE(checkpoint::parse_safetensors_header(whole.substr(0, length), whole.size()))
        << length;
    EXPECT_FALSE(checkpoint::parse_safetensors_header(whole, length)) << length;
  }
  EXPECT_FALSE(checkpoint::parse_safetensors_header(std::string(16, '\xff'), ~0ull));
  EXPECT_FALSE(checkpoint::parse_safetensors_header(std::string(16, '\xff'), 16));
}

TEST(HostileHeader, ShapesTypesAndOffsetsAreWhatTheyMustBe) {
  const std::string f32 = R"("F32")";
  for (const auto* shape :
       {"[-4]", "[4.0]", "[\"4\"]", "4", "{}", "[null]", "[3]", "[4611686018427387904,4]",
        "[9223372036854775807,2,2]", "[0,4611686018427387904,4611686018427387904]"}) {
    EXPECT_THAT(error_of(one(f32, shape, "[0,16]")), HasSubstr("x")) << shape;
  }
  for (const auto* offsets : {"[0,20]", "[16,0]", "[-16,0]", "[0]", "[0,8,16]", "16", "[0.0,16.0]",
                              "[18446744073709551600,18446744073709551615]", "[8,24]"}) {
    EXPECT_THAT(error_of(one(f32, "[4]", offsets)), HasSubstr("x")) << offsets;
  }
  for (const auto* type : {"\"F31\"", "4", "null", "[]"}) {
    EXPECT_NE(error_of(one(type, "[4]", "[0,16]")), "") << type;
  }
}

TEST(HostileHeader, IsAnObjectOfObjects) {
  for (const auto* json :
       {"[]", "3", "\"{}\"", "null", "", "{", R"({"x":3})", R"({"x":{}})", R"({"__metadata__":[]})",
        R"({"__metadata__":null})", R"({"__metadata__":{"a":1}})"}) {
    EXPECT_NE(error_of(json), "") << json;
  }
  constexpr std::size_t kDeep = 1'000'000;
  EXPECT_THAT(error_of(std::string(kDeep, '[') + std::string(kDeep, ']')), HasSubstr("nested"));
}

TEST(HostileHeader, ChangedAnywhereItIsRefusedOrConsistent) {
  Random random(5);
  const auto whole = file_with(
      R"({"__metadata__":{"a":"b"},"x":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}})");
  int refused = 0;
  for (int round = 0; round < 20'000; ++round) {
    auto bytes = whole;
    for (auto left = random.between(1, 3); left > 0; --left) {
      bytes[random.below(bytes.size())] = static_cast<char>(random.between(0, 255));
    }
    const auto size = whole.size() + 16;
    const auto header = checkpoint::parse_safetensors_header(bytes, size);
    if (!header) ++refused;
    if (!header) continue;
    for (const auto& tensor : header->tensors) {
      ASSERT_EQ(checkpoint::stored_tensor_bytes(tensor.type, tensor.shape),
                tensor.end - tensor.begin);
      ASSERT_LE(tensor.end, size - header->data_begin);
    }
  }
  EXPECT_GT(refused, 10'000);
  EXPECT_LT(refused, 20'000);
}

}  // namespace
}  // namespace gradwire::test
