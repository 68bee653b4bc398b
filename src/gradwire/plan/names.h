#pragma once

#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>
#include <vector>

#include "gradwire/base/error.h"
#include "gradwire/base/suggest.h"

namespace gradwire::plan {

/// Normalizes a name: lower case, without '-', '_' and spaces. "ResNet-50" becomes "resnet50".
inline std::string plain_name(std::string_view name) {
  std::string plain;
  for (const char c : name) {
    if (c != '-' && c != '_' && c != ' ')
      plain += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return plain;
}

/// Returns the entry of a table whose member `name` equals `name` after normalization, or null.
template <class Table>
auto* find_named(Table& table, std::string_view name) {
  const auto found = std::ranges::find_if(
      table, [&](const auto& entry) { return plain_name(entry.name) == plain_name(name); });
  return found == std::end(table) ? nullptr : &*found;
}

template <class Table>
std::vector<std::string_view> names_of(const Table& table) {
  std::vector<std::string_view> names;
  for (const auto& entry : table) names.push_back(entry.name);
  return names;
}

/// Throws Exception(invalid_argument) with the nearest valid name, and `hint`.
[[noreturn]] inline void refuse_name(std::string_view what, std::string_view name,
                                     const std::vector<std::string_view>& known,
                                     std::string_view hint = {}) {
  throw Exception(ErrorKind::invalid_argument, unknown_name(what, name, known) + std::string(hint));
}

}  // namespace gradwire::plan
