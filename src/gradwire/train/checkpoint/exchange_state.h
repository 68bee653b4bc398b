#pragma once

#include <map>
#include <string>
#include <vector>

#include "gradwire/exchange/exchange.h"
#include "gradwire/train/named_tensor.h"

namespace gradwire {

/// Returns copies of an exchange's state (error-feedback residuals) as 1-D tensors; names begin
/// with `prefix`.
std::vector<NamedTensor> state_of(Exchange& exchange, const std::string& prefix);

/// Restores an exchange from the state_of() of an earlier run; ignores other names. Throws
/// Exception(invalid_argument) that names the parameter, if one has another shape or type.
void load_state(Exchange& exchange, const std::map<std::string, torch::Tensor>& saved,
                const std::string& prefix);

}  // namespace gradwire
