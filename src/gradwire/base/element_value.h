#pragma once

#include <cstddef>

#include "gradwire/base/element.h"

namespace gradwire {

/// Stores one element of a type at any address, or loads it. Storing rounds to the nearest value of
/// the type, ties to even; integer types truncate, and the value must be in range. Loading is
/// exact. For single elements, not for bulk data.
void store_element(std::byte* at, DataType type, double value);
double load_element(const std::byte* at, DataType type);

}  // namespace gradwire
