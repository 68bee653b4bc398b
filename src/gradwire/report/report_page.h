#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "gradwire/base/error.h"
#include "gradwire/report/report_inputs.h"

namespace gradwire::report {

/// A self-contained HTML page: data, styles and scripts are inline, and its Content-Security-Policy
/// forbids the browser to load anything else.
struct HtmlPage {
  std::string title;
  std::string data;                       ///< JSON, available to scripts as gradwire.data.
  std::vector<std::string_view> styles;   ///< CSS, after the common style of all pages.
  std::vector<std::string_view> scripts;  ///< Run in this order, after the chart library and
                                          ///< page/charts.js, which wraps it.
};

/// Returns the page's HTML, including the chart library (Apache ECharts). Error: unsupported, with
/// the remedy, if gradwire was built without the library.
Result<std::string> html_page(const HtmlPage& page);

/// Returns JSON of the same value without "<", safe inside a <script> element.
std::string json_for_script(std::string_view json);

/// Returns the report as one self-contained HTML page. Errors as html_page().
Result<std::string> report_page(const ReportInputs& inputs, const std::string& title);

}  // namespace gradwire::report
