#pragma once

#include <filesystem>
#include <string>

#include <nlohmann/json.hpp>

#include "tests/support/temporary_folder.h"

namespace gradwire::test {

/// Returns the data that `gradwire report` has embedded into this page for its scripts.
inline nlohmann::json data_of_page(const std::filesystem::path& path) {
  const std::string page = content_of(path);
  const std::string element = "id=\"data\">";
  const auto begin = page.find(element) + element.size();
  return nlohmann::json::parse(page.substr(begin, page.find("</script>", begin) - begin));
}

}  // namespace gradwire::test
