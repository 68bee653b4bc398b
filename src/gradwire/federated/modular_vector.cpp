#include "gradwire/federated/modular_vector.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>

#include <fmt/format.h>

#include "gradwire/base/check.h"

namespace gradwire::federated {
namespace {

constexpr std::uint64_t low_bits(int bits) {
  return ~std::uint64_t{0} >> (64 - bits);
}

/// Whole words on a little-endian machine are their own packed form.
bool fills_words(int bits, std::size_t word_bytes) {
  return std::endian::native == std::endian::little &&
         static_cast<std::size_t>(bits) == 8 * word_bytes;
}

/// Moves at most 32 bits at a time through a buffer, in which less than 8 bits stay.
class BitWriter {
 public:
  explicit BitWriter(std::byte* to) : to_(to) {}

  void put(std::uint64_t value, int bits) {
    if (bits > 32) {
      put(value & low_bits(32), 32);
      return put(value >> 32, bits - 32);
    }
    held_ |= value << held_bits_;
    for (held_bits_ += bits; held_bits_ >= 8; held_bits_ -= 8) flush_byte();
  }
  void finish() {
    if (held_bits_ > 0) flush_byte();
  }

 private:
  void flush_byte() {
    *to_++ = static_cast<std::byte>(held_);
    held_ >>= 8;
  }

  std::byte* to_;
  std::uint64_t held_ = 0;
  int held_bits_ = 0;
};

class BitReader {
 public:
  explicit BitReader(const std::byte* from) : from_(from) {}

  std::uint64_t take(int bits) {
    if (bits > 32) {
      const std::uint64_t low = take(32);
      return low | take(bits - 32) << 32;
    }
    for (; held_bits_ < bits; held_bits_ += 8)
      held_ |= static_cast<std::uint64_t>(*from_++) << held_bits_;
    const std::uint64_t value = held_ & low_bits(bits);
    held_ >>= bits;
    held_bits_ -= bits;
    return value;
  }

 private:
  const std::byte* from_;
  std::uint64_t held_ = 0;
  int held_bits_ = 0;
};

}  // namespace

ModularVector::ModularVector(std::size_t size, int bits) : bits_(bits) {
  GRADWIRE_CHECK(bits >= 1 && bits <= 64);
  if (bits <= 16)
    words_.emplace<std::vector<std::uint16_t>>(size);
  else if (bits <= 32)
    words_.emplace<std::vector<std::uint32_t>>(size);
  else
    words_.emplace<std::vector<std::uint64_t>>(size);
}

std::size_t ModularVector::size() const {
  return visit([](auto words) { return words.size(); });
}

std::uint64_t ModularVector::operator[](std::size_t i) const {
  return visit([&](auto words) { return static_cast<std::uint64_t>(words[i]); }) & low_bits(bits_);
}

std::int64_t ModularVector::signed_at(std::size_t i) const {
  const int unused = 64 - bits_;
  return static_cast<std::int64_t>((*this)[i] << unused) >> unused;
}

void ModularVector::set(std::size_t i, std::uint64_t value) {
  visit([&](auto words) {
    words[i] = static_cast<typename decltype(words)::value_type>(value & low_bits(bits_));
  });
}

ModularVector& ModularVector::operator+=(const ModularVector& other) {
  GRADWIRE_CHECK(bits_ == other.bits_ && size() == other.size());
  visit([&](auto words) {
    using Word = typename decltype(words)::value_type;
    const Word* const from = std::get<std::vector<Word>>(other.words_).data();
    Word* const to = words.data();
    for (std::size_t i = 0; i < words.size(); ++i) to[i] = static_cast<Word>(to[i] + from[i]);
  });
  return *this;
}

ModularVector& ModularVector::operator-=(const ModularVector& other) {
  GRADWIRE_CHECK(bits_ == other.bits_ && size() == other.size());
  visit([&](auto words) {
    using Word = typename decltype(words)::value_type;
    const Word* const from = std::get<std::vector<Word>>(other.words_).data();
    Word* const to = words.data();
    for (std::size_t i = 0; i < words.size(); ++i) to[i] = static_cast<Word>(to[i] - from[i]);
  });
  return *this;
}

bool ModularVector::operator==(const ModularVector& other) const {
  if (bits_ != other.bits_ || size() != other.size()) return false;
  for (std::size_t i = 0; i < size(); ++i)
    if ((*this)[i] != other[i]) return false;
  return true;
}

void ModularVector::append_packed(std::vector<std::byte>& message) const {
  const std::size_t begin = message.size();
  message.resize(begin + packed_bytes(size(), bits_));
  if (size() == 0) return;
  std::byte* const to = message.data() + begin;
  visit([&](auto words) {
    if (fills_words(bits_, sizeof words[0])) {
      std::memcpy(to, words.data(), words.size_bytes());
      return;
    }
    BitWriter writer(to);
    for (const auto word : words) writer.put(word & low_bits(bits_), bits_);
    writer.finish();
  });
}

Result<ModularVector> ModularVector::unpack(ConstBytes packed, std::size_t size, int bits) {
  if (packed.size() != packed_bytes(size, bits)) {
    return failure(ErrorKind::corrupted,
                   fmt::format("a vector of {} elements of {} bits has {} bytes, not {}", size,
                               bits, packed_bytes(size, bits), packed.size()));
  }
  ModularVector vector(size, bits);
  if (size == 0) return vector;
  vector.visit([&](auto words) {
    if (fills_words(bits, sizeof words[0])) {
      std::memcpy(words.data(), packed.data(), words.size_bytes());
      return;
    }
    BitReader reader(packed.data());
    for (auto& word : words)
      word = static_cast<std::remove_reference_t<decltype(word)>>(reader.take(bits));
  });
  return vector;
}

int bits_for(std::uint64_t largest) {
  return static_cast<int>(std::bit_width(largest));
}

}  // namespace gradwire::federated
