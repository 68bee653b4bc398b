#include "gradwire/net/payload_checksum.h"

#include <new>

#include <xxhash.h>
#if defined(__x86_64__) && __has_include(<xxh_x86dispatch.h>)
#include <xxh_x86dispatch.h>  // Selects the vector width at run time.
#endif

namespace gradwire {

std::uint32_t payload_checksum(ConstBytes payload) {
  return static_cast<std::uint32_t>(XXH3_64bits(payload.data(), payload.size()));
}

void PayloadChecksum::Free::operator()(XXH3_state_s* state) const {
  XXH3_freeState(state);
}

void PayloadChecksum::begin(std::size_t size) {
  size_ = size;
  added_ = 0;
  if (size == 0) value_ = payload_checksum({});
}

void PayloadChecksum::add(ConstBytes piece) {
  if (piece.empty()) return;
  if (piece.size() == size_) {  // Most small payloads: avoids the cost of a state.
    value_ = payload_checksum(piece);
    return;
  }
  if (!state_) state_.reset(XXH3_createState());
  if (!state_) throw std::bad_alloc();
  if (added_ == 0) XXH3_64bits_reset(state_.get());
  XXH3_64bits_update(state_.get(), piece.data(), piece.size());
  added_ += piece.size();
  if (added_ == size_) value_ = static_cast<std::uint32_t>(XXH3_64bits_digest(state_.get()));
}

}  // namespace gradwire
