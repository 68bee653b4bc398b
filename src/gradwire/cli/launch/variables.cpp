#include "gradwire/cli/launch/variables.h"

#include <string_view>

extern char** environ;

namespace gradwire {

VariableMap own_variables() {
  VariableMap variables;
  for (char** entry = environ; *entry; ++entry) {
    const std::string_view text = *entry;
    const std::size_t equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    variables.insert_or_assign(std::string(text.substr(0, equals)), text.substr(equals + 1));
  }
  for (const char* name : kTorchrunOnly) variables.erase(name);
  return variables;
}

std::vector<std::string> entries_of(const VariableMap& variables) {
  std::vector<std::string> entries;
  for (const auto& [name, value] : variables) entries.push_back(name + "=" + value);
  return entries;
}

}  // namespace gradwire
