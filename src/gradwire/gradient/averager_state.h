#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "gradwire/gradient/averager.h"

namespace gradwire {

/// What Averager::load_state() does: copies `saved` into the memory of `live`, by name, and zeros
/// into what is not there. Throws Exception(invalid_argument) that names the parameter of another
/// count or type; then nothing was copied.
void load_averager_state(const std::vector<Averager::State>& live,
                         const std::vector<Averager::SavedState>& saved);

/// Drops what rests on how buckets are cut, if `layout`, the live "codec.layout", is not the saved
/// one: a job of another size begins it anew. That is what ends in `ending`, such as ".mean", or
/// all but "codec.step" if that is empty.
std::vector<Averager::SavedState> without_other_layouts(std::vector<Averager::SavedState> saved,
                                                        const LentSpan& layout,
                                                        std::string_view ending);

}  // namespace gradwire
