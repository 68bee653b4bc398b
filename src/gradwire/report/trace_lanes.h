#pragma once

#include <cstddef>
#include <vector>

#include "gradwire/report/trace.h"

namespace gradwire {

/// A span's place in a drawing.
struct TracePlace {
  std::size_t span = 0;  ///< Index.
  bool communication = false;
  int lane = 0;  ///< From 0, apart for communication and for the rest.
};

/// Lays spans out in as few lanes as it takes, so that in a lane of communication no two overlap,
/// and in any other they are apart or one lies inside the other. In order of begin, the outer
/// before the inner ones.
std::vector<TracePlace> lay_out(const std::vector<TraceSpan>& spans);

}  // namespace gradwire
