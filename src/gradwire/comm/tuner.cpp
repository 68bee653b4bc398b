#include "gradwire/comm/tuner.h"

namespace gradwire {

std::string choose_algorithm(Collective collective, std::size_t bytes, const Topology& topology) {
  switch (collective) {
    case Collective::all_reduce:
      if (topology.ranks() == 1 || bytes > 256 * 1024) return "ring";
      return bytes <= 8 * 1024 ? "recursive_doubling" : "direct";
    case Collective::broadcast: return bytes <= 64 * 1024 ? "tree" : "ring";
    case Collective::all_gather:
    case Collective::reduce_scatter: return bytes <= 256 * 1024 ? "direct" : "ring";
    case Collective::barrier: return "dissemination";
    case Collective::point_to_point: return "point_to_point";
  }
  return "ring";
}

}  // namespace gradwire
