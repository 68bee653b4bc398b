#include "gradwire/cli/probe/binding.h"

#include "gradwire/bootstrap/local_rails.h"

namespace gradwire {

std::string binding_of(const RailEndpoint& own, const SocketAddress& other) {
  return leaves_elsewhere(own, other) && answers_for_itself_alone(own) ? own.interface : "";
}

bool is_detour(const RailEndpoint& own, const SocketAddress& other) {
  return leaves_elsewhere(own, other) && !answers_for_itself_alone(own);
}

}  // namespace gradwire
