#pragma once

#include <string>
#include <vector>

#include "gradwire/gradient/averager.h"

namespace gradwire {

/// What Averager::load_state() does: copies `saved` into the memory of `live`, by name, and zeros
/// into what is not there. Throws Exception(invalid_argument) that names the parameter of another
/// count or type; then nothing was copied.
void load_averager_state(const std::vector<Averager::State>& live,
                         const std::vector<Averager::SavedState>& saved);

/// Drops what rests on which elements each rank is the owner of (*.mean), if `layout`, the live
/// "codec.layout", is not the saved one: a job of another size begins it anew.
std::vector<Averager::SavedState> without_other_layouts(std::vector<Averager::SavedState> saved,
                                                        const LentSpan& layout);

}  // namespace gradwire
