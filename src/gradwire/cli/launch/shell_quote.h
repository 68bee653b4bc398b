#pragma once

#include <string>
#include <string_view>

namespace gradwire {

/// Returns `text` quoted as one word of a POSIX shell's input; `text` may contain any character.
std::string shell_quote(std::string_view text);

}  // namespace gradwire
