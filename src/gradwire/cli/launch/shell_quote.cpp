#include "gradwire/cli/launch/shell_quote.h"

namespace gradwire {

std::string shell_quote(std::string_view text) {
  // Within single quotes every character is literal; only the quote itself must be written outside.
  std::string quoted = "'";
  for (const char c : text) {
    if (c == '\'') {
      quoted += "'\\''";
    } else {
      quoted += c;
    }
  }
  return quoted + "'";
}

}  // namespace gradwire
