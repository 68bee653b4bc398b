#include <optional>

#include <gtest/gtest.h>

#include "gradwire/host/group.h"
#include "gradwire/trace/trace_session.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/torch/loopback.h"

namespace gradwire::test {
namespace {

TEST(TraceGroup, TracesOverAnyProcessGroup) {
  const TemporaryFolder folder;
  std::optional<TraceSummary> summary;
  run_on_loopback(3, [&](const auto& group) {
    const SteadyClock clock;
    TraceSession session({.file = folder / "t.json", .host = "h"}, group_trace_peers(group), clock);
    {
      const TraceStep step(session.recorder(), 0);
      const TraceScope scope(session.recorder(), TraceKind::forward);
    }
    const auto found = session.finish();
    EXPECT_EQ(found.has_value(), group->getRank() == 0);
    if (found) summary = found;
  });
  ASSERT_TRUE(summary);
  ASSERT_EQ(summary->ranks.size(), 3u);
  for (int rank = 0; rank < 3; ++rank) {
    const auto& one = summary->ranks[static_cast<std::size_t>(rank)];
    EXPECT_EQ(one.rank, rank);
    EXPECT_EQ(one.steps, 1u);
  }
  EXPECT_TRUE(std::filesystem::exists(folder / "t.json"));
}

}  // namespace
}  // namespace gradwire::test
