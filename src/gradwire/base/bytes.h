#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

namespace gradwire {

using Bytes = std::span<std::byte>;
using ConstBytes = std::span<const std::byte>;

inline std::byte* bytes_of(std::string& text) {
  return reinterpret_cast<std::byte*>(text.data());
}

inline const std::byte* bytes_of(std::string_view text) {
  return reinterpret_cast<const std::byte*>(text.data());
}

/// Stores an integer in little-endian order on every machine; compiles to a single move.
template <class T>
requires std::is_unsigned_v<T>
void store_little_endian(std::byte* at, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i) at[i] = static_cast<std::byte>(value >> (8 * i));
}

template <class T>
requires std::is_unsigned_v<T> T load_little_endian(const std::byte* at) {
  T value = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i) {
    value = static_cast<T>(value | (static_cast<T>(at[i]) << (8 * i)));
  }
  return value;
}

}  // namespace gradwire
