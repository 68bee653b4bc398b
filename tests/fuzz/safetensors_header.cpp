#include "gradwire/checkpoint/safetensors_header.h"

#include <filesystem>

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include "gradwire/base/error.h"
#include "gradwire/base/unique_fd.h"
#include "tests/fuzz/target.h"

namespace gradwire::fuzz {
namespace {

std::string file_of(std::vector<checkpoint::StoredTensor> tensors,
                    std::map<std::string, std::string> metadata = {}) {
  const checkpoint::SafetensorsHeader header =
      checkpoint::lay_out_safetensors(std::move(tensors), std::move(metadata));
  std::uint64_t bytes = 0;
  for (const checkpoint::StoredTensor& tensor : header.tensors) bytes = std::max(bytes, tensor.end);
  return checkpoint::safetensors_header_bytes(header) + std::string(bytes, 'd');
}

}  // namespace

std::vector<std::string> seeds() {
  return {file_of({}),
          file_of({{"bias", "BF16", {8}}, {"weight", "F32", {4, 8}}, {"step", "I64", {}}},
                  {{"format", "pt"}}),
          file_of({{"nothing", "F64", {0, 3}}, {"mask", "BOOL", {5}}})};
}

/// The first eight bytes are the length of the JSON: up to the last brace.
void repair(std::string& input) {
  if (input.size() < 8) return;
  const std::size_t last = input.rfind('}');
  if (last == std::string::npos || last < 8) return;
  const std::uint64_t length = last + 1 - 8;
  for (std::size_t i = 0; i < 8; ++i) input[i] = static_cast<char>(length >> (8 * i));
}

namespace {

void check(const checkpoint::SafetensorsHeader& header, std::size_t size) {
  expect(header.data_begin >= 8 && header.data_begin <= size, "the data lie in the file");
  for (const checkpoint::StoredTensor& tensor : header.tensors) {
    expect(tensor.begin <= tensor.end && tensor.end <= size - header.data_begin,
           "tensors lie in the data");
    const auto elements = static_cast<std::uint64_t>(checkpoint::elements_of(tensor.shape));
    expect(elements <= size &&
               elements * checkpoint::stored_type_bytes(tensor.type) == tensor.end - tensor.begin,
           "and have as many bytes as shape and type make");
  }
}

}  // namespace

/// A header is either refused with the project's own error, or fits the file.
void test(std::string_view input) {
  const UniqueFd file(::memfd_create("fuzz", MFD_CLOEXEC));
  expect(::write(file.get(), input.data(), input.size()) == static_cast<ssize_t>(input.size()),
         "(memory is there)");
  const std::string path = fmt::format("/proc/self/fd/{}", file.get());
  try {
    check(checkpoint::read_safetensors_header(path), input.size());
  } catch (const Exception& e) {
    expect(e.kind() == ErrorKind::invalid_argument, "a refusal names what is wrong");
    expect(std::string_view(e.what()).starts_with(path), "and where");
  }
}

}  // namespace gradwire::fuzz
