#pragma once

#include <map>
#include <string>
#include <vector>

#include "gradwire/gradient/averager.h"
#include "gradwire/train/named_tensor.h"

namespace gradwire {

/// Returns copies of an averager's state (error-feedback residuals) as 1-D tensors; names begin
/// with `prefix`.
std::vector<NamedTensor> state_of(Averager& averager, const std::string& prefix);

/// Restores an averager from the state_of() of an earlier run; ignores other names. Throws
/// Exception(invalid_argument) that names the parameter, if one has another shape or type.
void load_state(Averager& averager, const std::map<std::string, torch::Tensor>& saved,
                const std::string& prefix);

}  // namespace gradwire
