#pragma once

#include <string>
#include <vector>

namespace gradwire {

/// One curve of a plot: points from left to right. x > 0 and y >= 0.
struct PlotLine {
  std::string name;
  std::vector<double> x;
  std::vector<double> y;  ///< As many as x.
};

/// A plot over sizes in bytes, or over numbers of something, which lie evenly by their logarithm.
struct LinePlot {
  std::string title;
  std::string y_title;          ///< With its unit.
  std::vector<PlotLine> lines;  ///< Each in a colour and with markers of its own.
  double limit = 0;             ///< A dashed line at this y; 0: none.
  std::string limit_name;
  std::string x_title;  ///< What is counted along x; empty: bytes.
};

/// The plot as an SVG document, for browsers and papers; needs nothing else. Pure.
std::string to_svg(const LinePlot& plot);

}  // namespace gradwire
