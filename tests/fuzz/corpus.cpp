#include "tests/fuzz/corpus.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <fstream>
#include <stdexcept>

#include <fmt/format.h>

#include "tests/fuzz/mutate.h"

namespace gradwire::fuzz {

std::vector<std::string> read_corpus(const std::filesystem::path& path) {
  std::vector<std::string> inputs;
  std::ifstream file(path, std::ios::binary);
  std::array<unsigned char, 4> length = {};
  while (file.read(reinterpret_cast<char*>(length.data()), length.size())) {
    std::size_t size = 0;
    for (std::size_t i = length.size(); i-- > 0;) size = 256 * size + length[i];
    std::string input(std::min(size, kMaxInput), '\0');
    if (size > kMaxInput || !file.read(input.data(), static_cast<std::streamsize>(size))) {
      throw std::runtime_error(fmt::format("{} is not a corpus", path.string()));
    }
    inputs.push_back(std::move(input));
  }
  return inputs;
}

void write_corpus(const std::filesystem::path& path, const std::vector<std::string>& inputs) {
  std::ofstream file(path, std::ios::binary);
  for (const std::string& input : inputs) {
    for (int shift = 0; shift < 32; shift += 8) {
      file.put(static_cast<char>(input.size() >> shift & 0xFF));
    }
    file << input;
  }
  if (!file.flush()) throw std::runtime_error(fmt::format("cannot write {}", path.string()));
}

}  // namespace gradwire::fuzz
