#include "gradwire/base/svg_picture.h"

#include <cmath>

#include "gradwire/base/markup.h"

namespace gradwire {

SvgPicture::SvgPicture(double width, double height, int font_size) {
  add(R"(<svg xmlns="http://www.w3.org/2000/svg" width="{0:.0f}" height="{1:.0f}" )"
      R"(viewBox="0 0 {0:.0f} {1:.0f}" font-family="sans-serif" font-size="{2}">)",
      width, height, font_size);
  add(R"(<rect width="100%" height="100%" fill="white"/>)");
}

void SvgPicture::add_title(double x, double y, int font_size, std::string_view text) {
  add(R"(<text x="{:.0f}" y="{:.0f}" font-size="{}">{}</text>)", x, y, font_size,
      markup_escaped(text));
}

std::string SvgPicture::take() {
  add("</svg>");
  return std::exchange(svg_, {});
}

double distance_of_marks(double total, double max_marks) {
  const double power = std::pow(10, std::floor(std::log10(total / 10)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (total / (factor * power) <= max_marks) return factor * power;
  }
  return 10 * power;
}

}  // namespace gradwire
