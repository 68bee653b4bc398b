#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gradwire/base/bytes.h"

/// A target is a file of this folder that defines test(), seeds() and repair(). It runs either
/// under libFuzzer, through the function that libFuzzer calls (LLVMFuzzerTestOneInput in
/// target.cpp), or under our driver.
namespace gradwire::fuzz {

/// Ends the process, by expect() or by a sanitizer, if an input violates a property of the target.
void test(std::string_view input);

/// Valid inputs from our own encoders, with which mutation starts. Deterministic.
std::vector<std::string> seeds();

/// Repairs fields that mutations cannot hit by chance, mainly checksums, so that the code behind
/// them is reached. Called after most mutations.
void repair(std::string& input);

/// Ends the process with this message if the property does not hold.
void expect(bool holds, std::string_view promise);

inline ConstBytes bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

inline std::string string_of(ConstBytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Splits an input from its front. Missing bytes read as zeros or as empty.
class Reader {
 public:
  explicit Reader(std::string_view input) : left_(input) {}

  std::uint8_t byte() {
    const std::string_view one = take(1);
    return one.empty() ? std::uint8_t{0} : static_cast<std::uint8_t>(one.front());
  }
  /// Little-endian.
  std::size_t number16() {
    const std::size_t low = byte();
    return low + 256 * std::size_t{byte()};
  }
  std::string_view take(std::size_t max) {
    const std::string_view taken = left_.substr(0, max);
    left_.remove_prefix(taken.size());
    return taken;
  }
  std::string_view rest() { return take(left_.size()); }
  bool empty() const { return left_.empty(); }
  std::size_t size() const { return left_.size(); }

 private:
  std::string_view left_;
};

}  // namespace gradwire::fuzz
