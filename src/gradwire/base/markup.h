#pragma once

#include <string>
#include <string_view>

namespace gradwire {

/// Text for HTML and SVG, in elements and in quoted attributes: replaces & < > " and '.
std::string markup_escaped(std::string_view text);

}  // namespace gradwire
