#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

namespace gradwire::recipe {

/// Options of generate().
struct GenerateOptions {
  std::string prompt = "\n";  ///< Not empty.
  std::int64_t length = 200;  ///< Characters (bytes) to write.
  /// Divides the logarithms of the probabilities: below 1 the likely characters become likelier. 0:
  /// always the likeliest.
  double temperature = 1;
  std::uint64_t seed = 1;
};

/// Continues a text with the model of a file that `gradwire train` wrote: draws one character after
/// the other, given the last ones that fit into the model's context. Calls `emit` for each. The
/// same options draw the same text. Throws Exception(invalid_argument) for a file of another model,
/// which it names, and what load_safetensors() throws.
void generate(const std::filesystem::path& model, const GenerateOptions& options,
              const std::function<void(char)>& emit);

}  // namespace gradwire::recipe
