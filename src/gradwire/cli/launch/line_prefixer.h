#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace gradwire {

/// Splits a rank's output, read in pieces of any size, into whole lines with a prefix, so that
/// several ranks can share a terminal. A carriage return also ends a line and is kept, so that a
/// progress line keeps overwriting itself.
class LinePrefixer {
 public:
  /// Maximum bytes buffered for an incomplete line; a longer line is split.
  static constexpr std::size_t kMaxLineBytes = 1 << 20;

  /// With an empty prefix, output is still buffered into whole lines.
  explicit LinePrefixer(std::string prefix) : prefix_(std::move(prefix)) {}

  /// Appends the lines completed by `text` to `out`.
  void feed(std::string_view text, std::string& out);

  /// End of stream: appends the incomplete last line, terminated with a newline.
  void finish(std::string& out);

 private:
  void end_line(std::string_view text, char end, std::string& out);

  std::string prefix_;
  std::string line_;       ///< Incomplete line.
  bool after_cr_ = false;  ///< The last line ended in \r: a following \n belongs to it.
};

}  // namespace gradwire
