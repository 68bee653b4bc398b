#pragma once

#include <iterator>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace gradwire {

/// An SVG picture in the making: elements on white, in a sans-serif font. Lengths are in pixels.
class SvgPicture {
 public:
  SvgPicture(double width, double height, int font_size);

  /// Adds a line of text in a larger font. The text is escaped.
  void add_title(double x, double y, int font_size, std::string_view text);

  /// Adds elements, written as SVG. Escape texts in them (base/markup.h).
  template <class... Arguments>
  void add(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    fmt::format_to(std::back_inserter(svg_), format, std::forward<Arguments>(arguments)...);
    svg_ += '\n';
  }

  /// Ends the picture and returns it.
  std::string take();

 private:
  std::string svg_;
};

/// Returns 1, 2 or 5 times a power of ten: a distance of marks such that `total` has about ten, and
/// at most `max_marks`, of them.
double distance_of_marks(double total, double max_marks);

}  // namespace gradwire
