#include "gradwire/base/json_document.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gradwire/base/json_fields.h"

namespace gradwire {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string error_of(std::string_view text) {
  const auto parsed = parse_json_document(text, "c.json", JsonComments::ignored);
  return parsed ? "" : parsed.error().message;
}

TEST(JsonDocument, AKeyThatStandsTwiceIsRefusedWithItsLine) {
  EXPECT_EQ(error_of("{\"a\": {\"x\": 1,\n \"y\": 2},\n // a comment\n \"b\": {\"x\": 3}}"), "");
  EXPECT_EQ(error_of("{\"a\": 1,\n \"b\": [{\"c\": 1, \"d\": 2},\n {\"c\": 1,\n \"c\": 2}]}"),
            "c.json:4: the key \"c\" stands twice in one object; leave one of them out");
  EXPECT_THAT(error_of("{\"a\": 1, \"b\": {\"a\": 2},\n\"a\": 3}"), StartsWith("c.json:2: "));
}

TEST(JsonDocument, NumbersThatNoDoubleHoldsAreRefusedWithTheirLine) {
  EXPECT_THAT(error_of("{\n\"a\": 1e400\n}"), AllOf(StartsWith("c.json:2: "), HasSubstr("1e400")));
  EXPECT_EQ(error_of("{\"a\": 1e300}"), "");
}

TEST(JsonDocument, ANulCharacterIsRefusedInKeysAndValues) {
  EXPECT_THAT(error_of("{\"a\": \"b\\u0000c\"}"),
              AllOf(StartsWith("c.json:1: "), HasSubstr("NUL"), HasSubstr("\"b\\u0000")));
  EXPECT_THAT(error_of("{\"a\\u0000\": 1}"), HasSubstr("NUL"));
  EXPECT_EQ(error_of("{\"a\": \"\\u0001\"}"), "");
}

TEST(JsonDocument, TextThatIsNotJsonIsNamedWithItsLine) {
  EXPECT_THAT(error_of("{\"a\": 1,\n\n]"),
              AllOf(StartsWith("c.json:3: it is not JSON: "), Not(HasSubstr("json.exception"))));
  EXPECT_THAT(error_of(""), StartsWith("c.json:1: it is not JSON"));
  const std::string comment = "{} // said";
  EXPECT_EQ(error_of(comment), "");
  EXPECT_FALSE(parse_json_document(comment, "c.json"));
}

TEST(JsonFields, WholeNumbersMayHaveAnExponent) {
  const auto json = nlohmann::ordered_json::parse(
      R"({"a": 5e8, "b": 40.5, "c": 1e30, "d": 12.0, "e": [1e1, 2], "f": [1, 1e19], "g": -1e0})");
  JsonFields fields(json, "");
  EXPECT_EQ(fields.integer_or("a", 0, 0), 500'000'000);
  EXPECT_THROW(fields.integer_or("b", 0, 0), Exception);
  EXPECT_THROW(fields.integer_or("c", 0, 0), Exception);
  EXPECT_EQ(fields.integer("d", 0, 20), 12);
  EXPECT_THROW(fields.integer("d", 0, 11), Exception);
  EXPECT_EQ(fields.integers("e", 1, 10), (std::vector<std::int64_t>{10, 2}));
  EXPECT_THROW(fields.integers("f", 1, INT64_MAX), Exception);
  EXPECT_THROW(fields.integer_or("g", 0, 0), Exception);
}

}  // namespace
}  // namespace gradwire
