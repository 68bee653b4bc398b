#include "tests/fuzz/target.h"

#include <cstdlib>

#include <fmt/format.h>

namespace gradwire::fuzz {

void expect(bool holds, std::string_view promise) {
  if (holds) return;
  fmt::print(stderr, "broken promise: {}\n", promise);
  std::abort();
}

}  // namespace gradwire::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  gradwire::fuzz::test({reinterpret_cast<const char*>(data), size});
  return 0;
}
