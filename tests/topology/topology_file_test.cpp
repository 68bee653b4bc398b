#include "gradwire/topology/topology_file.h"

#include <cstdio>
#include <filesystem>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace gradwire::topology {
namespace {

using std::chrono::microseconds;
using testing::HasSubstr;

Cluster example() {
  Cluster cluster;
  for (const char* name : {"a", "b"}) {
    cluster.hosts.push_back(
        {.name = name,
         .ranks = 2,
         .cores = 8,
         .kernel = 1,
         .rails = {{"eth0", 1500, 1.2e8, microseconds(25)}, {"eth1", 9000, 5e7, microseconds(30)}},
         .inside = Link{microseconds(1), 4e9},
         .together_bytes_per_second = 1.7e8,
         .clock_offset = microseconds(-310),
         .clock_uncertainty = microseconds(25)});
  }
  cluster.hosts[1].inside.reset();
  for (const int rail : {0, 1}) {
    cluster.paths.push_back(
        {0, 1, rail, microseconds(25), microseconds(20), 1.2e8 / (rail + 1), 1500, 0.25});
    cluster.paths.push_back({1, 0, rail, microseconds(26), microseconds(20), 1.1e8, 0, 0});
  }
  cluster.choices.push_back({"all_reduce", 4, 4096, "tree", microseconds(90)});
  cluster.choices.push_back({"all_reduce", 4, 1 << 20, "ring", microseconds(9000), 32});
  return cluster;
}

/// Returns the error of reading the example after one replacement in its text.
std::string refusal(const std::string& old_text, const std::string& new_text) {
  std::string text = to_json(example());
  const std::size_t at = text.find(old_text);
  EXPECT_NE(at, std::string::npos) << old_text;
  text.replace(at, old_text.size(), new_text);
  const auto cluster = parse_cluster(text);
  if (cluster) return "accepted";
  EXPECT_EQ(cluster.error().kind, ErrorKind::invalid_argument);
  return cluster.error().message;
}

TEST(TopologyFileTest, ReadsWhatItWrites) {
  const auto read = parse_cluster(to_json(example()));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(*read, example());
}

TEST(TopologyFileTest, ChoicesMayBeMissing) {
  Cluster cluster = example();
  cluster.choices.clear();
  EXPECT_EQ(to_json(cluster).find("choices"), std::string::npos);
  EXPECT_EQ(*parse_cluster(to_json(cluster)), cluster);
  EXPECT_THAT(refusal("\"ranks\": 4", "\"ranks\": 0"), HasSubstr("choices[0].ranks is 0"));
  EXPECT_THAT(refusal("\"segments\": 32", "\"segments\": 0"),
              HasSubstr("choices[1].segments is 0"));
}

TEST(TopologyFileTest, RefusesOtherVersionsAndUnknownKeys) {
  EXPECT_THAT(refusal("\"version\": 1", "\"version\": 2"),
              HasSubstr("version is 2; it must be 1, the version that this gradwire reads"));
  EXPECT_THAT(refusal("\"version\": 1,", ""), HasSubstr("version is missing"));
  EXPECT_THAT(refusal("\"cores\": 8", "\"cores\": 8, \"core\": 8"),
              HasSubstr("unknown key in hosts[0] \"core\" (did you mean \"cores\"?)"));
  EXPECT_THAT(refusal("\"paths\"", "\"pahts\""), HasSubstr("paths is missing"));
}

TEST(TopologyFileTest, RefusesInvalidValuesAndNamesThem) {
  EXPECT_THAT(refusal("\"from\": 0", "\"from\": 2"),
              HasSubstr("paths[0].from is 2; it must be a whole number from 0 to 1"));
  EXPECT_THAT(refusal("\"from\": 0", "\"from\": 1"), HasSubstr("paths[0].to is 1"));
  EXPECT_THAT(refusal("\"rail\": 0", "\"rail\": 2"), HasSubstr("paths[0].rail is 2"));
  EXPECT_THAT(refusal("\"rail\": 1", "\"rail\": 0"), HasSubstr("paths[2].from"));
  EXPECT_THAT(refusal("\"mtu\": 1500", "\"mtu\": 15.5"), HasSubstr("hosts[0].rails[0].mtu"));
  EXPECT_THAT(refusal("\"loss\": 0.25", "\"loss\": 25"), HasSubstr("a number from 0 to 1"));
  EXPECT_THAT(refusal("\"name\": \"b\"", "\"name\": \"a\""), HasSubstr("hosts[1].name is \"a\""));
  EXPECT_THAT(refusal("\"ranks\": 2", "\"ranks\": 0"), HasSubstr("hosts[0].ranks is 0"));
  EXPECT_THAT(parse_cluster("{\"version\": 1, \"hosts\": [], \"paths\": []}").error().message,
              HasSubstr("hosts is []"));
  EXPECT_THAT(parse_cluster("rubbish").error().message, HasSubstr("not JSON"));
  EXPECT_THAT(parse_cluster("[1]").error().message, HasSubstr("must be an object"));
}

TEST(TopologyFileTest, ClockOffsetsThatOverflowAreRefused) {
  EXPECT_THAT(refusal("\"clock_offset_us\": -310.0", "\"clock_offset_us\": 1e18"),
              HasSubstr("hosts[0].clock_offset_us is 1e+18"));
  Cluster far = example();
  far.hosts[0].clock_offset = std::chrono::hours(24 * 365 * 280);
  const auto read = parse_cluster(to_json(far));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_NEAR(static_cast<double>(read->hosts[0].clock_offset.count()),
              static_cast<double>(far.hosts[0].clock_offset.count()), 1e6);
}

TEST(TopologyFileTest, FilesThatAreNotThereAreNamed) {
  const auto none = read_cluster("/nowhere/topology.json");
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().kind, ErrorKind::system);
  EXPECT_THAT(none.error().message, HasSubstr("/nowhere/topology.json: No such file"));
  try {
    write_cluster(example(), "/dev/null/topology.json");
    ADD_FAILURE() << "no error";
  } catch (const Exception& e) {
    EXPECT_THAT(e.what(), HasSubstr("/dev/null/topology.json cannot be written"));
  }
}

TEST(TopologyFileTest, GoesThroughAFile) {
  const auto path = std::filesystem::temp_directory_path() /
                    ("gradwire-topology-" + std::to_string(::getpid()) + ".json");
  write_cluster(example(), path.string());
  const auto read = read_cluster(path.string());
  std::filesystem::remove(path);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(*read, example());
}

}  // namespace
}  // namespace gradwire::topology
