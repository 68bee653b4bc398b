#include "gradwire/base/crc32c.h"

#include <array>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace gradwire {
namespace {

constexpr std::uint32_t kPolynomial = 0x82F63B78u;

using Table = std::array<std::array<std::uint32_t, 256>, 8>;

constexpr Table make_tables() {
  Table tables{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 1u) ? (crc >> 1) ^ kPolynomial : crc >> 1;
    tables[0][i] = crc;
  }
  for (std::size_t k = 1; k < tables.size(); ++k) {
    for (std::size_t i = 0; i < 256; ++i) {
      const std::uint32_t before = tables[k - 1][i];
      tables[k][i] = (before >> 8) ^ tables[0][before & 0xFFu];
    }
  }
  return tables;
}

constexpr Table kTables = make_tables();

/// Eight bytes a step by table ("slicing by 8"): about 2 GB/s where there is no instruction.
std::uint32_t by_table(const std::byte* at, std::size_t size, std::uint32_t crc) {
  for (; size >= 8; size -= 8, at += 8) {
    const std::uint64_t word = load_little_endian<std::uint64_t>(at) ^ crc;
    crc = 0;
    for (std::size_t i = 0; i < 8; ++i) crc ^= kTables[7 - i][(word >> (8 * i)) & 0xFFu];
  }
  for (; size > 0; --size, ++at) {
    crc = (crc >> 8) ^ kTables[0][(crc ^ static_cast<std::uint32_t>(*at)) & 0xFFu];
  }
  return crc;
}

#if defined(__x86_64__)

/// CRC of `crc` followed by kLane zero bytes, as a table over each of its four bytes: what joins
/// three independent streams into one.
constexpr std::size_t kLane = 2048;

std::array<std::array<std::uint32_t, 256>, 4> make_shift_tables() {
  std::array<std::array<std::uint32_t, 256>, 4> tables{};
  const std::array<std::byte, kLane> zeros{};
  for (std::size_t k = 0; k < 4; ++k) {
    for (std::uint32_t i = 0; i < 256; ++i) {
      tables[k][i] = by_table(zeros.data(), zeros.size(), i << (8 * k));
    }
  }
  return tables;
}

std::uint32_t shift_lane(std::uint32_t crc) {
  static const auto tables = make_shift_tables();
  return tables[0][crc & 0xFFu] ^ tables[1][(crc >> 8) & 0xFFu] ^ tables[2][(crc >> 16) & 0xFFu] ^
         tables[3][crc >> 24];
}

std::uint64_t load_word(const std::byte* at) {
  std::uint64_t word;
  std::memcpy(&word, at, sizeof word);
  return word;
}

/// The instruction takes three cycles and a new one can start in each: three streams side by side
/// fill them, and run at about 20 GB/s where one stream runs at 8.
__attribute__((target("sse4.2"))) std::uint32_t by_instruction(const std::byte* at,
                                                               std::size_t size,
                                                               std::uint32_t start) {
  std::uint64_t a = start;
  for (; size >= 3 * kLane; size -= 3 * kLane, at += 3 * kLane) {
    std::uint64_t b = 0;
    std::uint64_t c = 0;
    for (std::size_t i = 0; i < kLane; i += 8) {
      a = _mm_crc32_u64(a, load_word(at + i));
      b = _mm_crc32_u64(b, load_word(at + kLane + i));
      c = _mm_crc32_u64(c, load_word(at + 2 * kLane + i));
    }
    b ^= shift_lane(static_cast<std::uint32_t>(a));
    a = c ^ shift_lane(static_cast<std::uint32_t>(b));
  }
  for (; size >= 8; size -= 8, at += 8) a = _mm_crc32_u64(a, load_word(at));
  auto crc = static_cast<std::uint32_t>(a);
  for (; size > 0; --size, ++at) crc = _mm_crc32_u8(crc, static_cast<unsigned char>(*at));
  return crc;
}

#endif

}  // namespace

std::uint32_t crc32c(ConstBytes bytes, std::uint32_t before) {
  const std::uint32_t start = ~before;
#if defined(__x86_64__)
  static const bool has_instruction = __builtin_cpu_supports("sse4.2");
  if (has_instruction) return ~by_instruction(bytes.data(), bytes.size(), start);
#endif
  return ~by_table(bytes.data(), bytes.size(), start);
}

}  // namespace gradwire
