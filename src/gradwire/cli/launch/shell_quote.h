#pragma once

#include <string>
#include <string_view>

namespace gradwire {

/// The text as one word of a POSIX shell's input, whatever characters it has.
std::string shell_quote(std::string_view text);

}  // namespace gradwire
