#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/base/error.h"
#include "gradwire/net/frame.h"
#include "tests/support/local_job.h"

/// Which setting decides the algorithm of an operation: its own options, otherwise the
/// communicator's, otherwise GRADWIRE_ALGORITHM, otherwise the tuner.
namespace gradwire::test {
namespace {

using testing::HasSubstr;

constexpr std::size_t kCount = 1024;

/// Sets GRADWIRE_ALGORITHM during its lifetime.
class Variable {
 public:
  explicit Variable(const char* value) { ::setenv(kName, value, 1); }
  ~Variable() { ::unsetenv(kName); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  static constexpr const char* kName = "GRADWIRE_ALGORITHM";
};

/// Returns the algorithm of an all-reduce of four ranks, inferred from the bytes that rank 0 sent,
/// which differ between these three algorithms.
std::string used(LocalJob& job, const std::string& asked) {
  const std::size_t before = job.on(0).payload_bytes_sent();
  expect_no_errors(job.run([&](Rank, Communicator& c) {
    std::vector<float> data(kCount, 1);
    c.all_reduce({data.data(), kCount, DataType::float32, nullptr}, ReduceOp::sum,
                 {.algorithm = asked})
        .wait();
  }));
  const std::size_t quarter = kCount * sizeof(float) / 4;
  const std::size_t quarters = (job.on(0).payload_bytes_sent() - before) / quarter;
  const std::map<std::size_t, std::string> known{
      {6, "ring"}, {8, "recursive_doubling"}, {12, "exchange"}};
  const auto found = known.find(quarters);
  return found == known.end() ? fmt::format("{} quarters", quarters) : found->second;
}

/// Returns how many more frames rank 0 sends for the second number of segments than for the first.
double frames_more(LocalJob& job, int few, int many) {
  constexpr std::size_t kElements = 1 << 18;
  std::vector<std::size_t> sent;
  for (const int segments : {few, many}) {
    const std::size_t before = job.on(0).bytes_sent();
    expect_no_errors(job.run([&](Rank rank, Communicator& c) {
      std::vector<float> data(kElements, rank == 0 ? 3.0F : 0.0F);
      c.broadcast({data.data(), kElements, DataType::float32, nullptr}, 0,
                  {.algorithm = "ring", .segments = segments})
          .wait();
      EXPECT_EQ(data, std::vector<float>(kElements, 3.0F));
    }));
    sent.push_back(job.on(0).bytes_sent() - before);
  }
  return (static_cast<double>(sent[1]) - static_cast<double>(sent[0])) / net::kFrameHeaderBytes;
}

std::string announced(LocalJob& job) {
  return job.on(0).algorithm_for(schedule::Collective::all_reduce, kCount * sizeof(float));
}

TEST(SegmentOptions, AMessageIsCutIntoAsManyAsTheOperationSays) {
  LocalJob job(2);
  // Segments of 128 and 16 KiB: 8 and 64. A ping or two may be sent in between.
  EXPECT_NEAR(frames_more(job, 8, 64), 56, 4);
}

TEST(AlgorithmPrecedence, TheOperationThenTheCommunicatorThenTheVariable) {
  const Variable variable("all_reduce=ring");
  LocalJob with_option(4, {.algorithm = "recursive_doubling"});
  EXPECT_EQ(used(with_option, "exchange"), "exchange");
  EXPECT_EQ(used(with_option, ""), "recursive_doubling");
  EXPECT_EQ(announced(with_option), "recursive_doubling");
  LocalJob without_option(4);
  EXPECT_EQ(used(without_option, "exchange"), "exchange");
  EXPECT_EQ(used(without_option, ""), "ring");
  EXPECT_EQ(announced(without_option), "ring");
}

TEST(AlgorithmPrecedence, TheTunerIsAskedLast) {
  std::vector<AlgorithmEstimate> ranking;
  {
    LocalJob job(4);
    ranking = job.on(0).explain(schedule::Collective::all_reduce, kCount * sizeof(float));
    EXPECT_EQ(announced(job), ranking.front().algorithm);
  }
  // Used even though the tuner ranks it last.
  const Variable variable(ranking.back().algorithm.c_str());
  LocalJob job(4);
  EXPECT_EQ(announced(job), ranking.back().algorithm);
}

/// Runs an all_to_all with splits for which rank 0 names an algorithm and the others name none. All
/// ranks must use the same one.
std::vector<std::string> with_splits(const CommunicatorOptions& options, const std::string& asked) {
  LocalJob job(3, options);
  return job.run([&](Rank rank, Communicator& c) {
    const std::vector<std::size_t> counts{100, 100, 100};
    std::vector<int> in(300), out(300);
    c.all_to_all({in.data(), 300, DataType::int32}, {out.data(), 300, DataType::int32, nullptr},
                 counts, counts, {.algorithm = rank == 0 ? asked : ""})
        .wait();
    c.barrier().wait();
  });
}

TEST(AlgorithmPrecedence, HoldsForUnequalSplitsToo) {
  expect_no_errors(with_splits({}, "direct"));
  EXPECT_THAT(with_splits({}, "pairwise")[0], HasSubstr("disagree"));
  expect_no_errors(with_splits({.algorithm = "all_to_all=pairwise"}, "pairwise"));
  EXPECT_THAT(with_splits({.algorithm = "pairwise"}, "direct")[0], HasSubstr("disagree"));
  const Variable variable("all_to_all=pairwise");
  expect_no_errors(with_splits({}, "pairwise"));
  expect_no_errors(with_splits({.algorithm = "all_to_all=direct"}, "direct"));
}

std::string refusal(const CommunicatorOptions& options) {
  try {
    Communicator::connect(bootstrap::Job{}, options);
  } catch (const Exception& e) {
    return e.what();
  }
  return "";
}

TEST(AlgorithmPrecedence, AWrongNameIsReportedWithItsSource) {
  EXPECT_THAT(refusal({.algorithm = "rign"}), HasSubstr("the option algorithm: unknown"));
  const Variable variable("rign");
  EXPECT_THAT(refusal({}), HasSubstr("GRADWIRE_ALGORITHM: unknown"));
  EXPECT_EQ(refusal({.algorithm = "ring"}), "");
}

}  // namespace
}  // namespace gradwire::test
