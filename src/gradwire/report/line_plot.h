#pragma once

#include <string>
#include <vector>

namespace gradwire::report {

/// A curve: points from left to right, with x > 0 and y >= 0.
struct PlotLine {
  std::string name;
  std::vector<double> x;
  std::vector<double> y;  ///< Same size as x.
};

/// A plot with a logarithmic x axis of bytes, or of another number.
struct LinePlot {
  std::string title;
  std::string y_title;          ///< Quantity and unit on the y axis.
  std::vector<PlotLine> lines;  ///< Each with its own color and markers.
  double limit = 0;             ///< Draws a dashed line at this y; 0: none.
  std::string limit_name;
  std::string x_title;  ///< Quantity on the x axis; empty: bytes.
};

/// Returns the plot as a self-contained SVG document. Pure.
std::string to_svg(const LinePlot& plot);

}  // namespace gradwire::report
