#include "tests/fuzz/coverage.h"

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

/// The linker's name for the start of the program: code positions relative to it do not depend on
/// the load address.
extern "C" const char __executable_start;

namespace gradwire::fuzz {
namespace {

constexpr std::size_t kPlaces = 1 << 16;

/// Static, because the compiler calls a function without arguments at each branch.
constinit std::array<std::uint8_t, kPlaces> now{};   // Executions of each position, up to 255.
constinit std::array<std::uint8_t, kPlaces> seen{};  // Bit n: about 2^n times in one input.
constinit std::array<std::uint16_t, kPlaces> touched{};
constinit std::size_t touched_count = 0;

void reach(std::uintptr_t at) {
  const std::uintptr_t offset = at - reinterpret_cast<std::uintptr_t>(&__executable_start);
  const auto place = static_cast<std::uint16_t>((offset * 0x9E3779B97F4A7C15u) >> 48);
  if (now[place] == 0) touched[touched_count++] = place;
  if (now[place] < 255) ++now[place];
}

}  // namespace

void begin_input() {
  for (std::size_t i = 0; i < touched_count; ++i) now[touched[i]] = 0;
  touched_count = 0;
}

bool reached_anything_new() {
  bool anything = false;
  for (std::size_t i = 0; i < touched_count; ++i) {
    const std::size_t place = touched[i];
    const auto bit = static_cast<std::uint8_t>(1u << (std::bit_width(now[place]) - 1));
    anything = anything || (seen[place] & bit) == 0;
    seen[place] = static_cast<std::uint8_t>(seen[place] | bit);
  }
  return anything;
}

void forget_coverage() {
  seen.fill(0);
}

}  // namespace gradwire::fuzz

extern "C" void __sanitizer_cov_trace_pc();
extern "C" void __sanitizer_cov_trace_pc() {
  gradwire::fuzz::reach(reinterpret_cast<std::uintptr_t>(__builtin_return_address(0)));
}
