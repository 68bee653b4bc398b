#include "gradwire/train/data_parallel/model_check.h"

#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gradwire/base/error.h"

namespace gradwire {
namespace {

constexpr const char* kNothing = "nothing";

std::string next_line(std::istream& text) {
  std::string line;
  return std::getline(text, line) ? line : kNothing;
}

}  // namespace

std::string describe_tensors(const std::vector<NamedTensor>& tensors) {
  std::string text;
  for (const auto& [name, tensor] : tensors) {
    text += fmt::format("'{}' of shape [{}] and type {}\n", name,
                        fmt::join(tensor.sizes().begin(), tensor.sizes().end(), ", "),
                        torch::toString(tensor.scalar_type()));
  }
  return text;
}

std::string first_difference(const std::string& ours, int our_rank, const std::string& theirs,
                             int their_rank) {
  if (ours == theirs) return "";
  std::istringstream our_lines(ours);
  std::istringstream their_lines(theirs);
  for (int index = 0;; ++index) {
    const auto our_line = next_line(our_lines);
    const auto their_line = next_line(their_lines);
    if (our_line == their_line) continue;
    return fmt::format("tensor {} of the model is {} on rank {} and {} on rank {}", index, our_line,
                       our_rank, their_line, their_rank);
  }
}

void check_same_model(std::string_view who, c10d::ProcessGroup& group,
                      const std::vector<NamedTensor>& tensors) {
  const auto texts = gather_texts(group, describe_tensors(tensors));
  for (int rank = 1; rank < group.getSize(); ++rank) {
    const auto difference =
        first_difference(texts[0], 0, texts[static_cast<std::size_t>(rank)], rank);
    if (difference.empty()) continue;
    throw Exception(ErrorKind::mismatch,
                    fmt::format("{}: {}; every rank must build the same model", who, difference));
  }
}

}  // namespace gradwire
