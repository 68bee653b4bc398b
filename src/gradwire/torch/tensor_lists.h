#pragma once

#include <cstddef>
#include <vector>

#include "gradwire/torch/tensor_span.h"

/// Checks and conversions of c10d's tensor lists. Checks throw Exception(invalid_argument) that
/// names rank, operation and argument.
namespace gradwire {

using TensorList = std::vector<at::Tensor>;

[[noreturn]] void refuse(const ArgumentName& name, const std::string& reason);

/// Returns the only tensor, or the only list, of an argument; throws if there are more or none.
const at::Tensor& only(const TensorList& tensors, const ArgumentName& name);
const TensorList& only(const std::vector<TensorList>& lists, const ArgumentName& name);

/// Requires one tensor for each of `size` ranks, with the type and device of `like`; this rank's
/// must have as many elements as `like`.
void check_list(const TensorList& list, const at::Tensor& like, int size, const ArgumentName& name);

/// Returns true if all tensors have the same number of elements.
bool all_equal(const TensorList& list);

/// Requires each tensor to have as many elements as `like`.
void check_equal(const TensorList& list, const at::Tensor& like, const ArgumentName& name);

/// Requires all tensors to be defined, of one size and type, dense and on the CPU.
void check_alike(const TensorList& list, const ArgumentName& name);

/// Requires `whole` to have exactly `size` times the elements of `part`, and the same type.
void check_parts(const at::Tensor& whole, const at::Tensor& part, int size,
                 const ArgumentName& name);

/// Requires equal numbers of outputs and inputs.
void check_pairs(std::size_t outputs, std::size_t inputs, const ArgumentName& name);

/// flat_for() allocates one tensor for all of a list; flattened() and unflatten() copy to and from
/// it.
at::Tensor flat_for(const TensorList& list);
at::Tensor flattened(const TensorList& list);
void unflatten(const at::Tensor& flat, const TensorList& list);

/// joined() concatenates two lists, or a list of lists. split_as() is the inverse: it splits into
/// lists with the lengths of those in `like`.
TensorList joined(const TensorList& some, const TensorList& others);
TensorList joined(const std::vector<TensorList>& lists);
std::vector<TensorList> split_as(const std::vector<TensorList>& like, const TensorList& all);

/// Element counts, as lend_bytes() counts them: per tensor; per split along the first dimension (no
/// splits: equal parts).
std::vector<std::size_t> element_counts(const TensorList& list);
std::vector<std::size_t> element_counts(const at::Tensor& tensor,
                                        const std::vector<std::int64_t>& splits, int size,
                                        const ArgumentName& name);

}  // namespace gradwire
