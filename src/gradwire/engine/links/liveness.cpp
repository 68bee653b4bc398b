#include "gradwire/engine/links/liveness.h"

namespace gradwire::engine {

void Liveness::check(Time now) {
  const Duration late = now - next_check();
  if (late > interval()) {
    for (Peer& peer : peers_) peer.last_received += late;
  }
  last_check_ = now;
}

}  // namespace gradwire::engine
