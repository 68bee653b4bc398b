#pragma once

#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "gradwire/base/error.h"

namespace gradwire {

enum class JsonComments : bool { refused, ignored };

/// Parses a document that people write. Refuses what JSON libraries accept silently: a key that an
/// object has twice, and a NUL character in a string. Errors (invalid_argument) begin with
/// "NAME:LINE: "; `name` is that of the file.
Result<nlohmann::ordered_json> parse_json_document(std::string_view text, std::string_view name,
                                                   JsonComments comments = JsonComments::refused);

}  // namespace gradwire
