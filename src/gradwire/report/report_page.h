#pragma once

#include <string>

#include "gradwire/base/error.h"
#include "gradwire/report/report_inputs.h"

namespace gradwire {

/// Returns the report as one self-contained HTML page. Errors as html_page().
Result<std::string> report_page(const ReportInputs& inputs, const std::string& title);

}  // namespace gradwire
