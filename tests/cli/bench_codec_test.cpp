#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gradwire/codec/catalogue.h"
#include "tests/cli/launched.h"

/// `gradwire bench codec`, as the real program.
namespace gradwire::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Outcome bench_codec(const std::vector<std::string>& arguments) {
  std::vector<std::string> command{"bench", "codec", "--size", "64K", "--seconds", "0.001"};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return run_gradwire(command);
}

TEST(BenchCodec, MeasuresEveryCodec) {
  const Outcome outcome = bench_codec({"--json", "-"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  std::set<std::string> measured;
  const auto json = nlohmann::json::parse(outcome.out);
  for (const auto& row : json["rows"]) {
    const std::string codec = row["codec"];
    measured.insert(codec.substr(0, codec.find(':')));
  }
  std::set<std::string> known;
  for (const codec::CodecEntry& entry : codec::codec_catalogue()) {
    if (entry.kind != codec::CodecKind::automatic) known.emplace(entry.name);
  }
  EXPECT_EQ(measured, known);
}

TEST(BenchCodec, ItsRowsSayHowFastHowSmallAndHowExact) {
  const Outcome outcome = bench_codec({"none", "bf16", "int8", "top_k:0.1", "--json", "-"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const auto rows = nlohmann::json::parse(outcome.out)["rows"];
  ASSERT_EQ(rows.size(), 4u);
  for (const auto& row : rows) {
    EXPECT_EQ(row["bytes"], 1 << 16);
    for (const char* rate : {"encode_gbps", "encode_plain_gbps", "decode_gbps", "decode_add_gbps"})
      EXPECT_GT(row[rate].get<double>(), 0) << rate << row;
    EXPECT_DOUBLE_EQ(row["ratio"].get<double>() * row["encoded_bytes"].get<double>(), 1 << 16);
    EXPECT_EQ(row["relative_error"] == 0, row["codec"] == "none");
  }
  EXPECT_EQ(rows[1]["ratio"], 2);
  EXPECT_NEAR(rows[1]["relative_error"].get<double>(), 0.0017, 0.0001);
  EXPECT_NEAR(rows[2]["ratio"].get<double>(), 3.98, 0.01);
  EXPECT_EQ(rows[3]["codec"], "top_k:0.1");
}

TEST(BenchCodec, PowerSgdIsMeasuredOnMatrices) {
  const Outcome outcome = bench_codec({"power_sgd:1", "power_sgd:16", "--json", "-"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const auto rows = nlohmann::json::parse(outcome.out)["rows"];
  // 16 rows of 1024: a column each way; uncompressed if the factors would not be smaller.
  EXPECT_EQ(rows.at(0)["encoded_bytes"], (16 + 1024) * 4);
  EXPECT_EQ(rows.at(1)["encoded_bytes"], 1 << 16);
  EXPECT_GT(rows.at(0)["encode_gbps"].get<double>(), 0);
  EXPECT_GT(rows.at(0)["decode_gbps"].get<double>(), 0);
  // The main direction of such a matrix, found in one step, has slightly more than one in 16.
  EXPECT_GT(rows.at(0)["relative_error"].get<double>(), 0.85);
  EXPECT_LT(rows.at(0)["relative_error"].get<double>(), 0.98);
}

TEST(BenchCodec, PrintsALineOnEachAndWritesTheSameRows) {
  const TemporaryFolder folder;
  const std::string json = folder / "rows.json";
  const Outcome outcome = bench_codec({"int4", "rotation:2", "--json", json});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("64 KiB of Gaussian"), HasSubstr("\nint4  "),
                                 HasSubstr("\nrotation:2  ")));
  EXPECT_EQ(nlohmann::json::parse(content_of(json))["rows"].size(), 2u);
}

TEST(BenchCodec, RefusesWhatItCannotMeasure) {
  const Outcome unknown = bench_codec({"int9"});
  EXPECT_NE(unknown.status, 0);
  EXPECT_THAT(unknown.err, AllOf(HasSubstr("unknown codec \"int9\""), HasSubstr("\n  int8 "),
                                 HasSubstr("\n  top_k[:FRACTION] ")));
  const Outcome other = bench_codec({"auto"});
  EXPECT_NE(other.status, 0);
  EXPECT_THAT(other.err, HasSubstr("is not a codec of single values"));
}

}  // namespace
}  // namespace gradwire::test
