#include "gradwire/report/report_page.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gradwire/base/markup.h"
#include "gradwire/report/report_data.h"

/// Files that the build compiles in (cmake/GradwireEmbed.cmake). Empty if missing at build time.
namespace gradwire::embedded {
std::string_view charts_css();
std::string_view charts_js();
std::string_view echarts_js();
std::string_view echarts_notices();
std::string_view federated_js();
std::string_view report_charts_js();
std::string_view report_js();
}  // namespace gradwire::embedded

namespace gradwire::report {

namespace {

constexpr std::string_view kHead = R"(<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:;
  style-src 'unsafe-inline'; script-src 'unsafe-inline'">
)";

constexpr std::string_view kBody = R"(</head>
<body>
<noscript>This page needs JavaScript to draw its charts, and JavaScript is disabled.</noscript>
<main id="page"></main>
)";

std::string element(std::string_view tag, std::string_view attributes, std::string_view content) {
  return fmt::format("<{}{}>{}</{}>\n", tag, attributes, content, tag);
}

}  // namespace

std::string json_for_script(std::string_view json) {
  std::string safe;
  for (const char c : json) {
    // In JSON, '<' occurs only in strings.
    if (c == '<') {
      safe += "\\u003c";
    } else {
      safe += c;
    }
  }
  return safe;
}

Result<std::string> html_page(const HtmlPage& page) {
  if (embedded::echarts_js().empty()) {
    return failure(
        ErrorKind::unsupported,
        "this gradwire was built without the chart library (Apache ECharts): run "
        "scripts/setup.sh build where npm's registry is reachable, and rebuild gradwire");
  }
  std::string html{kHead};
  html += element("title", "", markup_escaped(page.title));
  html += element("style", "", embedded::charts_css());
  for (const auto style : page.styles) html += element("style", "", style);
  html += kBody;
  html += element("script", " type=\"application/json\" id=\"data\"", json_for_script(page.data));
  html += element("script", " type=\"text/plain\" id=\"licences\"", embedded::echarts_notices());
  html += element("script", "", embedded::echarts_js());
  html += element("script", "", embedded::charts_js());
  for (const auto script : page.scripts) html += element("script", "", script);
  return html + "</body>\n</html>\n";
}

Result<std::string> report_page(const ReportInputs& inputs, const std::string& title) {
  const auto data = report_data(inputs, title);
  return html_page(
      {.title = title,
       .data = data.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace),
       .scripts = {embedded::report_charts_js(), embedded::federated_js(), embedded::report_js()}});
}

}  // namespace gradwire::report
