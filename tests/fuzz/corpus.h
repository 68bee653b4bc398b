#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace gradwire::fuzz {

/// A corpus file: for each input its length, four bytes little-endian, and its bytes. No input for
/// an empty path or a file that does not exist. Throws std::runtime_error if the file is cut off.
std::vector<std::string> read_corpus(const std::filesystem::path& path);

/// Replaces the file. Throws std::runtime_error if it cannot be written.
void write_corpus(const std::filesystem::path& path, const std::vector<std::string>& inputs);

}  // namespace gradwire::fuzz
