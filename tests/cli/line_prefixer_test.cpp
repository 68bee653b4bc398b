#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "gradwire/cli/launch/rank_output.h"

namespace gradwire::cli {
namespace {

/// Returns the output for text that arrives in these pieces.
std::string prefixed(const std::vector<std::string>& pieces, const std::string& prefix = "[1] ") {
  LinePrefixer lines(prefix);
  std::string out;
  for (const std::string& piece : pieces) lines.feed(piece, out);
  lines.finish(out);
  return out;
}

TEST(LinePrefixerTest, PrefixesWholeLines) {
  EXPECT_EQ(prefixed({"a\nb\n"}), "[1] a\n[1] b\n");
  EXPECT_EQ(prefixed({"a", "b", "\n\n", "c\n"}), "[1] ab\n[1] \n[1] c\n");
  EXPECT_EQ(prefixed({"a\nb\n"}, ""), "a\nb\n");
  EXPECT_EQ(prefixed({}), "");
}

TEST(LinePrefixerTest, EndsAnUnfinishedLastLine) {
  EXPECT_EQ(prefixed({"a\nb"}), "[1] a\n[1] b\n");
}

TEST(LinePrefixerTest, CarriageReturnsStayAndEndLines) {
  EXPECT_EQ(prefixed({"10 %\r20 %\rdone\n"}), "[1] 10 %\r[1] 20 %\r[1] done\n");
  EXPECT_EQ(prefixed({"dos\r\nlines\r", "\nend\r\n"}), "[1] dos\r\n[1] lines\r\n[1] end\r\n");
}

TEST(LinePrefixerTest, PassesCarriageReturnLinesOnAtOnce) {
  LinePrefixer lines("[1] ");
  std::string out;
  lines.feed("10 %\r", out);
  EXPECT_EQ(out, "[1] 10 %\r");
}

TEST(LinePrefixerTest, CutsEndlessLines) {
  const std::string endless(LinePrefixer::kMaxLineBytes + 1, 'x');
  EXPECT_EQ(prefixed({endless, "y"}, ""), endless + "\ny\n");
}

TEST(LinePrefixerTest, OutputDoesNotDependOnHowInputIsCut) {
  const std::string text = "one\ntwo\r\nthree\rfour\n\n\rfive";
  const std::string whole = prefixed({text});
  for (std::size_t cut = 0; cut <= text.size(); ++cut) {
    EXPECT_EQ(prefixed({text.substr(0, cut), text.substr(cut)}), whole) << "cut at " << cut;
  }
}

}  // namespace
}  // namespace gradwire::cli
