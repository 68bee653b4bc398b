#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "gradwire/host/group.h"
#include "gradwire/host/named_tensor.h"

namespace gradwire {

/// Throws Exception(mismatch), the same on every rank, unless all ranks have the same tensors in
/// the same order. The error names `who`, the first tensor that differs, and both ranks' shapes and
/// types.
void check_same_model(std::string_view who, c10d::ProcessGroup& group,
                      const std::vector<NamedTensor>& tensors);

/// One line per tensor: name, shape, type. check_same_model() compares these.
std::string describe_tensors(const std::vector<NamedTensor>& tensors);

/// Returns the first difference between two descriptions as a sentence; empty if there is none.
std::string first_difference(const std::string& ours, int our_rank, const std::string& theirs,
                             int their_rank);

}  // namespace gradwire
