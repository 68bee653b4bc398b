#include "gradwire/base/crc32c.h"

#include <algorithm>

#include <isa-l/crc.h>

namespace gradwire {

std::uint32_t crc32c(ConstBytes bytes, std::uint32_t before) {
  constexpr std::size_t kMaxPiece = std::size_t{1} << 30;  // The library takes the length as int.
  std::uint32_t crc = ~before;
  while (!bytes.empty()) {
    const ConstBytes piece = bytes.first(std::min(bytes.size(), kMaxPiece));
    // The library takes a non-const pointer, but only reads.
    auto* data = const_cast<unsigned char*>(reinterpret_cast<const unsigned char*>(piece.data()));
    crc = crc32_iscsi(data, static_cast<int>(piece.size()), crc);
    bytes = bytes.subspan(piece.size());
  }
  return ~crc;
}

}  // namespace gradwire
