#pragma once

#include <nlohmann/json_fwd.hpp>

#include "gradwire/report/report_inputs.h"

namespace gradwire::report {

/// Returns the page's figures of a federated run: means of at most 500 intervals of rounds, and
/// quartiles and groups of clients, so that their number does not matter. docs/report.md describes
/// each. Pure.
nlohmann::ordered_json federated_json(const ReportFederated& item);

}  // namespace gradwire::report
