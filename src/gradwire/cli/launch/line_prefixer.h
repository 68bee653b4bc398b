#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace gradwire {

/// Turns what a rank writes, in whatever pieces it comes, into whole lines with a prefix, so that
/// the lines of several ranks can share a terminal. A carriage return ends a line too and stays
/// one, so that a progress line keeps overwriting itself.
class LinePrefixer {
 public:
  /// A line that grows beyond this is cut in two, as it must be kept until it is whole.
  static constexpr std::size_t kLongestLine = 1 << 20;

  /// With an empty prefix lines are kept whole all the same.
  explicit LinePrefixer(std::string prefix) : prefix_(std::move(prefix)) {}

  /// Appends the lines that `text` completes to `out`.
  void feed(std::string_view text, std::string& out);

  /// Nothing more comes: appends what is left, with the line end that it lacks.
  void finish(std::string& out);

 private:
  void end_line(std::string_view text, char end, std::string& out);

  std::string prefix_;
  std::string line_;       ///< The beginning of a line whose end has not come.
  bool after_cr_ = false;  ///< The last line ended in \r: a \n now belongs to it.
};

}  // namespace gradwire
