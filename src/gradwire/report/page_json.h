#pragma once

#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "gradwire/report/histogram.h"

namespace gradwire::report {

/// Figures of a page as JSON.

/// Rounds to six significant digits: more than a chart shows, at a third of the bytes. null if the
/// value is not finite.
nlohmann::ordered_json rounded(double value);

/// Quartiles and range; null without values.
nlohmann::ordered_json spread_json(const std::vector<double>& values);

/// null without values.
nlohmann::ordered_json histogram_json(const std::vector<double>& values, const Bins& bins);

}  // namespace gradwire::report
