#include "gradwire/cli/launch/shell_quote.h"

namespace gradwire {

std::string shell_quote(std::string_view text) {
  // Within single quotes everything stands for itself; only the quote must be written outside.
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
