#include "gradwire/report/report_page.h"

#include <nlohmann/json.hpp>

#include "gradwire/report/chart_library.h"
#include "gradwire/report/report_data.h"

namespace gradwire {

namespace embedded {
std::string_view report_charts_js();
std::string_view report_js();
}  // namespace embedded

Result<std::string> report_page(const ReportInputs& inputs, const std::string& title) {
  const auto data = report_data(inputs, title);
  return html_page(
      {.title = title,
       .data = data.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace),
       .scripts = {embedded::report_charts_js(), embedded::report_js()}});
}

}  // namespace gradwire
