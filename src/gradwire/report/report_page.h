#pragma once

#include <string>

#include "gradwire/base/error.h"
#include "gradwire/report/report_inputs.h"

namespace gradwire {

/// The report as one HTML page that needs no network. Errors as html_page().
Result<std::string> report_page(const ReportInputs& inputs, const std::string& title);

}  // namespace gradwire
