#include "tests/fuzz/mutate.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>
#include <string_view>

namespace gradwire::fuzz {
namespace {

/// Limits of integers of 1, 2, 4 and 8 bytes: where they wrap, change sign, or lose bits as double.
constexpr std::array<std::uint64_t, 16> kNumbers = {0,
                                                    1,
                                                    2,
                                                    7,
                                                    8,
                                                    0x7F,
                                                    0x80,
                                                    0xFF,
                                                    0x7FFF,
                                                    0xFFFF,
                                                    0x7FFFFFFF,
                                                    0x80000000,
                                                    0xFFFFFFFF,
                                                    std::uint64_t{1} << 53,
                                                    0x7FFFFFFFFFFFFFFF,
                                                    0xFFFFFFFFFFFFFFFF};

/// Such numbers as text, and other values that JSON permits in their place.
constexpr std::array<std::string_view, 32> kWords = {"0",
                                                     "-1",
                                                     "1",
                                                     "255",
                                                     "65536",
                                                     "2147483647",
                                                     "2147483648",
                                                     "-2147483649",
                                                     "4294967296",
                                                     "9007199254740993",
                                                     "9223372036854775807",
                                                     "9223372036854775808",
                                                     "-9223372036854775808",
                                                     "18446744073709551615",
                                                     "18446744073709551616",
                                                     "1e18",
                                                     "1e300",
                                                     "1e999",
                                                     "-0.0",
                                                     "0.5",
                                                     "null",
                                                     "true",
                                                     "\"\"",
                                                     "{}",
                                                     "[]",
                                                     "[[[[[[[[",
                                                     "{\"a\":{\"a\":",
                                                     "\\u0000",
                                                     "\\ud800",
                                                     "../",
                                                     "\xff",
                                                     std::string_view("\0", 1)};

class Change {
 public:
  Change(std::string& input, const std::vector<std::string>& others, Random& random)
      : input_(input), others_(others), random_(random) {}

  void apply() {
    switch (random_.below(11)) {
      case 0:
        return flip_bit();
      case 1:
        return replace_byte();
      case 2:
      case 3:
        return replace_binary();
      case 4:
      case 5:
        return replace_decimal();
      case 6:
        return insert(kWords[random_.below(kWords.size())]);
      case 7:
        return erase();
      case 8:
        return insert(part_of(input_));
      case 9:
        return splice();
      default:
        return insert_noise();
    }
  }

 private:
  std::size_t place() { return random_.below(input_.size() + 1); }
  std::size_t length() { return 1 + random_.below(random_.one_in(4) ? 64 : 8); }

  void flip_bit() {
    if (input_.empty()) return;
    input_[random_.below(input_.size())] ^= static_cast<char>(1u << random_.below(8));
  }

  void replace_byte() {
    if (input_.empty()) return;
    input_[random_.below(input_.size())] = static_cast<char>(random_.next());
  }

  /// Replaces a number by a limit, by the input's size, or by a slightly different one.
  void replace_binary() {
    const std::size_t bytes = std::size_t{1} << random_.below(4);
    if (input_.size() < bytes) return;
    const std::size_t at = random_.below(input_.size() - bytes + 1);
    std::uint64_t value = 0;
    for (std::size_t i = bytes; i-- > 0;) {
      value = value << 8 | static_cast<std::uint8_t>(input_[at + i]);
    }
    switch (random_.below(3)) {
      case 0:
        value = kNumbers[random_.below(kNumbers.size())] + random_.below(3) - 1;
        break;
      case 1:
        value = input_.size() + random_.below(5) - 2;
        break;
      default:
        value += random_.below(33) - 16;
    }
    for (std::size_t i = 0; i < bytes; ++i) input_[at + i] = static_cast<char>(value >> (8 * i));
  }

  void replace_decimal() {
    const auto is_digit = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; };
    const auto from = input_.begin() + static_cast<std::ptrdiff_t>(place());
    const auto begin = std::find_if(from, input_.end(), is_digit);
    const auto end = std::find_if_not(begin, input_.end(), is_digit);
    if (begin == end) return;
    input_.replace(begin, end, kWords[random_.below(kWords.size())]);
  }

  void insert(std::string_view text) { input_.insert(place(), std::string(text)); }

  void insert_noise() {
    std::string noise(length(), '\0');
    for (char& c : noise) c = static_cast<char>(random_.next());
    insert(noise);
  }

  void erase() {
    if (input_.empty()) return;
    input_.erase(random_.below(input_.size()), length());
  }

  std::string part_of(const std::string& text) {
    if (text.empty()) return {};
    return text.substr(random_.below(text.size()), length() * 4);
  }

  /// Joins its beginning and the end of another input; or inserts a part of that in the middle.
  void splice() {
    const std::string& other = others_[random_.below(others_.size())];
    if (random_.one_in(2)) return insert(part_of(other));
    const std::size_t at = place();
    input_.replace(at, std::string::npos, other, std::min(at, other.size()));
  }

  std::string& input_;
  const std::vector<std::string>& others_;
  Random& random_;
};

}  // namespace

std::string mutate(std::string input, const std::vector<std::string>& others, Random& random) {
  Change change(input, others, random);
  for (std::uint64_t i = 1 + random.below(random.one_in(3) ? 8 : 3); i > 0; --i) change.apply();
  if (input.size() > kMaxInput) input.resize(kMaxInput);
  return input;
}

}  // namespace gradwire::fuzz
