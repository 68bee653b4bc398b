#include "gradwire/cli/bench/bench_report.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/cli/bench/collective_bench.h"
#include "gradwire/cli/bench/peers.h"
#include "gradwire/schedule/cost/bus_bandwidth.h"

namespace gradwire::test {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

cli::BenchRow row(double median_us, double cpu_seconds = 0, std::size_t wrong = 0) {
  cli::BenchRow made{.measured = {.bytes = 1'000'000}, .ranks = 4};
  made.median_us = median_us;
  made.p99_us = 2 * median_us;
  made.cpu_seconds = cpu_seconds;
  made.wrong = wrong;
  return made;
}

TEST(BenchRow, BandwidthsAreThoseOfNcclTests) {
  const cli::BenchRow r = row(8000);
  EXPECT_DOUBLE_EQ(r.algbw_gbps(), 1);
  EXPECT_DOUBLE_EQ(r.busbw_gbps(), 1.5);
  EXPECT_DOUBLE_EQ(schedule::bus_factor(schedule::Collective::all_to_all, 4), 0.75);
  EXPECT_DOUBLE_EQ(schedule::bus_factor(schedule::Collective::gather, 4), 0.75);
  EXPECT_DOUBLE_EQ(schedule::bus_factor(schedule::Collective::reduce, 4), 1);
  EXPECT_DOUBLE_EQ(schedule::bus_factor(schedule::Collective::point_to_point, 4), 1);
  EXPECT_DOUBLE_EQ(row(1, 0.001).cpu_seconds_per_gb(), 1);
}

TEST(Combine, TakesMediansAndKeepsTheSpread) {
  const std::vector<cli::BenchRow> rounds{row(30, 3), row(10, 1, 2), row(20, 2, 5)};
  const cli::SystemRow combined = combine("gloo", rounds);
  EXPECT_EQ(combined.system, "gloo");
  EXPECT_EQ(combined.rounds, 3);
  EXPECT_EQ(combined.row.median_us, 20);
  EXPECT_EQ(combined.row.p99_us, 40);
  EXPECT_EQ(combined.row.cpu_seconds, 2);
  EXPECT_EQ(combined.row.wrong, 7u);
  EXPECT_EQ(combined.lowest_us, 10);
  EXPECT_EQ(combined.highest_us, 30);
}

TEST(ComparisonTable, ShowsRatiosAndSharesOfTheLimit) {
  const std::vector<cli::BenchRow> ours{row(8000)}, theirs{row(20000)};
  const std::string table =
      cli::comparison_table({{combine("gradwire", ours), combine("gloo", theirs)}}, 2);
  EXPECT_THAT(table, AllOf(HasSubstr("gradwire us"), HasSubstr("gloo us"), HasSubstr(" 75.0%"),
                           HasSubstr(" 30.0%"), HasSubstr(" 2.50 ")));
  EXPECT_THAT(cli::comparison_table({{combine("gradwire", ours)}}, 0), Not(HasSubstr("%")));
}

TEST(ParseRows, ReadsWhatAPeerPrintedAfterItsWarnings) {
  const std::vector<cli::BenchCase> cases{{.bytes = 4}, {.bytes = 64}};
  const auto rows = cli::parse_rows(
      "a warning\n{\"rows\": [{\"median_us\": 5, \"cpu_seconds\": 0.5, \"ranks\": 3, \"wrong\": 1},"
      " {\"median_us\": 7}]}\n",
      cases);
  ASSERT_TRUE(rows);
  EXPECT_EQ((*rows)[0].median_us, 5);
  EXPECT_EQ((*rows)[0].ranks, 3);
  EXPECT_EQ((*rows)[0].wrong, 1u);
  EXPECT_EQ((*rows)[1].measured.bytes, 64u);
  EXPECT_EQ((*rows)[1].median_us, 7);
}

TEST(ParseRows, RefusesAnythingElse) {
  const std::vector<cli::BenchCase> cases{{.bytes = 4}};
  for (const char* text :
       {"", "no rows", "{\"rows\": []}", "{\"rows\": [{}, {}]}", "{\"rows\": [{}"})
    EXPECT_FALSE(cli::parse_rows(text, cases)) << text;
}

TEST(BandwidthPlot, HasALineForEachSystem) {
  const std::vector<cli::SystemRow> rows{{"gradwire", row(8000)}, {"gloo", row(16000)}};
  const report::LinePlot plot = cli::bandwidth_plot(rows, 10);
  ASSERT_EQ(plot.lines.size(), 2u);
  EXPECT_EQ(plot.lines[1].name, "gloo");
  EXPECT_THAT(plot.lines[1].x, ElementsAre(1e6));
  EXPECT_THAT(plot.lines[1].y, ElementsAre(0.75));
  EXPECT_EQ(plot.limit, 10);
}

class Pattern : public ::testing::TestWithParam<schedule::Collective> {};

/// Finds the correct value of every output element by trying: sums over three ranks are small.
void solve(const cli::BenchPattern& pattern, std::vector<std::byte>& output) {
  for (std::size_t at = 0; at < output.size(); at += 4) {
    const std::size_t wrong = pattern.count_wrong(output);
    for (float value = 0; value < 100 && pattern.count_wrong(output) == wrong; ++value)
      std::memcpy(&output[at], &value, 4);
  }
}

TEST_P(Pattern, FindsEveryWrongElement) {
  const cli::BenchPattern pattern({.collective = GetParam(), .bytes = 120}, 1, 3);
  std::vector<std::byte> input(pattern.input_count() * 4), output(pattern.output_count() * 4);
  pattern.fill(input, output);
  const bool nothing_comes =
      GetParam() == schedule::Collective::reduce || GetParam() == schedule::Collective::gather;
  EXPECT_EQ(pattern.count_wrong(output) == 0, nothing_comes);  // Rank 1 is not the root.
  for (std::size_t at = 0; at < output.size(); at += 4) {
    const float nonsense = 1000;
    std::memcpy(&output[at], &nonsense, 4);
  }
  EXPECT_EQ(pattern.count_wrong(output), pattern.output_count());
  solve(pattern, output);
  EXPECT_EQ(pattern.count_wrong(output), 0u);
  output.back() = std::byte{0x44};
  EXPECT_EQ(pattern.count_wrong(output), 1u);
}

INSTANTIATE_TEST_SUITE_P(
    Bench, Pattern,
    ::testing::Values(schedule::Collective::all_reduce, schedule::Collective::all_gather,
                      schedule::Collective::reduce_scatter, schedule::Collective::broadcast,
                      schedule::Collective::reduce, schedule::Collective::gather,
                      schedule::Collective::scatter, schedule::Collective::all_to_all,
                      schedule::Collective::point_to_point));

cli::BenchOptions on_hosts() {
  cli::BenchOptions options;
  options.launch.hosts = "a,b";
  options.launch.ranks = 4;
  options.launch.rsh = "ssh -p 22";
  options.launch.interface = "gw0";
  options.launch.port = 99;
  options.python = "py";
  return options;
}

std::string joined(const cli::Words& command) {
  std::string text;
  for (const std::string& word : command) text += word + "|";
  return text;
}

const std::vector<cli::BenchCase> kCases{{.bytes = 4, .iterations = 7},
                                         {.bytes = 64, .iterations = 7}};

TEST(Peers, GradwireGetsWhatWasGiven) {
  EXPECT_THAT(
      joined(cli::gradwire_command(on_hosts(), kCases, "/gw")),
      AllOf(HasSubstr("/gw|bench|all_reduce|--json|-|--sizes|4,64|"), HasSubstr("--hosts|a,b|"),
            HasSubstr("--rsh|ssh -p 22|"), HasSubstr("--interface|gw0|"), HasSubstr("--port|99|")));
}

TEST(Peers, RanksOverTorchAreStartedByGradwire) {
  EXPECT_THAT(joined(cli::backend_command(on_hosts(), kCases, "gloo", "/gw", "s.py")),
              AllOf(HasSubstr("/gw|run|--engine|own|--no-prefix|--ranks|4|--hosts|a,b|"),
                    HasSubstr("--interface|gw0|"), Not(HasSubstr("GLOO")),
                    HasSubstr("--|py|s.py|gloo|all_reduce|7|1|2|4|64|")));
  cli::BenchOptions here;
  here.launch.ranks = 2;
  EXPECT_THAT(joined(cli::backend_command(here, kCases, "nccl", "/gw", "s.py")),
              HasSubstr("GLOO_SOCKET_IFNAME=lo|"));
}

TEST(Peers, MpiPutsItsRanksWhereOursAre) {
  const std::string command = joined(cli::mpi_command(on_hosts(), kCases, "/gw", "/mpi", "ring"));
  EXPECT_THAT(command,
              AllOf(HasSubstr("/gw|run|--engine|own|--ranks|1|--no-prefix|--|mpirun|"),
                    HasSubstr("-n|4|--host|a:2,b:2|"), HasSubstr("plm_rsh_agent|ssh -p 22|"),
                    HasSubstr("btl_tcp_if_include|gw0|"),
                    HasSubstr("coll_tuned_allreduce_algorithm|ring|/mpi|all_reduce|7|")));
  EXPECT_THAT(joined(cli::mpi_command(on_hosts(), kCases, "/gw", "/mpi", "default")),
              Not(HasSubstr("coll_tuned")));
}

TEST(Peers, MpiAlgorithms) {
  EXPECT_THAT(cli::mpi_algorithms(schedule::Collective::all_reduce), Contains("rabenseifner"));
  EXPECT_THAT(cli::mpi_algorithms(schedule::Collective::point_to_point), ElementsAre("default"));
}

}  // namespace
}  // namespace gradwire::test
