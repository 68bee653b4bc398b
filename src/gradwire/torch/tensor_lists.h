#pragma once

#include <cstddef>
#include <vector>

#include "gradwire/torch/tensor_span.h"

/// What c10d spells as lists of tensors. All throw Exception(invalid_argument) that names rank,
/// operation and argument.
namespace gradwire {

using TensorList = std::vector<at::Tensor>;

[[noreturn]] void refuse(const ArgumentName& name, const std::string& reason);

/// The one tensor, or one list, of an argument.
const at::Tensor& only(const TensorList& tensors, const ArgumentName& name);
const TensorList& only(const std::vector<TensorList>& lists, const ArgumentName& name);

/// One tensor for each of `size` ranks, of the type of `like` and on its device; the one of this
/// rank with as many elements as it.
void check_list(const TensorList& list, const at::Tensor& like, int size, const ArgumentName& name);

/// Whether all have the same number of elements.
bool all_equal(const TensorList& list);

/// The same, as a condition.
void check_equal(const TensorList& list, const at::Tensor& like, const ArgumentName& name);

/// All are defined, of one size and type, and on the CPU.
void check_alike(const TensorList& list, const ArgumentName& name);

/// `whole` has exactly `size` times the elements of `part`, of the same type.
void check_parts(const at::Tensor& whole, const at::Tensor& part, int size,
                 const ArgumentName& name);

/// `outputs` and `inputs` are pairs.
void check_pairs(std::size_t outputs, std::size_t inputs, const ArgumentName& name);

/// Memory for all of a list, one after the other, and copies to and fro.
at::Tensor flat_for(const TensorList& list);
at::Tensor flattened(const TensorList& list);
void unflatten(const at::Tensor& flat, const TensorList& list);

/// All tensors of two lists, or of a list of lists, in their order; and the way back: lists of as
/// many tensors as those of `like` have.
TensorList joined(const TensorList& some, const TensorList& others);
TensorList joined(const std::vector<TensorList>& lists);
std::vector<TensorList> split_as(const std::vector<TensorList>& like, const TensorList& all);

/// Numbers of elements, as lend_bytes() counts them: of each tensor; of splits along the first
/// dimension (none: equal parts).
std::vector<std::size_t> element_counts(const TensorList& list);
std::vector<std::size_t> element_counts(const at::Tensor& tensor,
                                        const std::vector<std::int64_t>& splits, int size,
                                        const ArgumentName& name);

}  // namespace gradwire
