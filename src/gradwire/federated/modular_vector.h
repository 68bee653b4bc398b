#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "gradwire/base/bytes.h"
#include "gradwire/base/error.h"

namespace gradwire::federated {

/// A vector of integers modulo 2^bits, 1 <= bits <= 64: what clients send and the server adds. Sums
/// are exact, so that they depend neither on the order of the terms nor on threads or machines, and
/// masks that cancel leave nothing behind.
///
/// Elements are kept in words of 16, 32 or 64 bits, the smallest that hold `bits`. Words may have
/// more bits set than `bits`: 2^bits divides the words' modulus, so only readers reduce. Not
/// thread-safe.
class ModularVector {
 public:
  /// Zeros.
  ModularVector(std::size_t size, int bits);
  ModularVector() : ModularVector(0, 1) {}

  std::size_t size() const;
  int bits() const { return bits_; }

  /// Element i, in 0 .. 2^bits - 1.
  std::uint64_t operator[](std::size_t i) const;
  /// Element i as the number of smallest magnitude in its class, in -2^(bits-1) .. 2^(bits-1) - 1.
  std::int64_t signed_at(std::size_t i) const;
  void set(std::size_t i, std::uint64_t value);

  /// Elementwise, modulo 2^bits. `other` has the same size and bits.
  ModularVector& operator+=(const ModularVector& other);
  ModularVector& operator-=(const ModularVector& other);

  /// Equal elements, as operator[] reads them.
  bool operator==(const ModularVector& other) const;

  /// Calls function(words), with words a std::span of std::uint16_t, std::uint32_t or
  /// std::uint64_t.
  template <class Function>
  decltype(auto) visit(Function&& function) {
    return std::visit([&](auto& words) -> decltype(auto) { return function(std::span(words)); },
                      words_);
  }
  template <class Function>
  decltype(auto) visit(Function&& function) const {
    return std::visit(
        [&](const auto& words) -> decltype(auto) { return function(std::span(words)); }, words_);
  }

  /// Bytes of `size` elements of `bits` bits on the wire, without gaps between them.
  static std::size_t packed_bytes(std::size_t size, int bits) { return (size * bits + 7) / 8; }

  /// Appends the elements, the first in the lowest bits of the first byte.
  void append_packed(std::vector<std::byte>& message) const;

  /// Inverse of append_packed(). Fails with corrupted unless `packed` has exactly the bytes of
  /// `size` elements.
  static Result<ModularVector> unpack(ConstBytes packed, std::size_t size, int bits);

 private:
  int bits_ = 1;
  std::variant<std::vector<std::uint16_t>, std::vector<std::uint32_t>, std::vector<std::uint64_t>>
      words_;
};

/// Bits of a sum of non-negative integers that is at most `largest`: ceil(log2(largest + 1)).
int bits_for(std::uint64_t largest);

}  // namespace gradwire::federated
