#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "gradwire/base/error.h"

namespace gradwire {

/// A page that needs nothing but itself: what it shows, how it looks and the scripts that draw it
/// lie in it, and it forbids the browser to load anything else.
struct HtmlPage {
  std::string title;
  std::string data;                       ///< JSON, which scripts find as gradwire.data.
  std::vector<std::string_view> styles;   ///< CSS, after that which all pages have.
  std::vector<std::string_view> scripts;  ///< Run in this order, after the chart library and
                                          ///< page/charts.js, which wraps it.
};

/// The page's text, with the chart library (Apache ECharts) inside. Error: unsupported, if gradwire
/// was built without it, with what to do.
Result<std::string> html_page(const HtmlPage& page);

/// Text as HTML shows it.
std::string html_escaped(std::string_view text);

/// JSON as a <script> may contain it: the same value, without "<".
std::string json_for_script(std::string_view json);

}  // namespace gradwire
