#include "gradwire/bootstrap/handshake/refusal_log.h"

#include <bit>

#include "gradwire/base/log.h"

namespace gradwire::bootstrap {
namespace {

/// All refusals up to this number are logged, then those whose number is a power of two.
constexpr std::uint64_t kAllLogged = 20;

}  // namespace

void RefusalLog::add(const std::string& reason) {
  ++refusals_;
  if (refusals_ > kAllLogged && !std::has_single_bit(refusals_)) return;
  log_warning("refused a connection (number {}): {}", refusals_, reason);
}

}  // namespace gradwire::bootstrap
