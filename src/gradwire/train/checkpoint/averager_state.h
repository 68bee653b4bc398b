#pragma once

#include <map>
#include <string>
#include <vector>

#include "gradwire/gradient/averager.h"
#include "gradwire/train/named_tensor.h"

namespace gradwire {

/// Copies of an averager's state (error feedback), one tensor of one dimension each; names begin
/// with `prefix`.
std::vector<NamedTensor> state_of(Averager& averager, const std::string& prefix);

/// Gives an averager what state_of() of it was in an earlier run; other names are passed over.
/// Throws Exception(invalid_argument) that names the parameter, if one has another shape or type.
void load_state(Averager& averager, const std::map<std::string, torch::Tensor>& saved,
                const std::string& prefix);

}  // namespace gradwire
