#pragma once

#include <cstddef>

#include "gradwire/base/element.h"

namespace gradwire {

/// Writes one element of a type to any address, rounded to the nearest value it has (ties to even;
/// integers truncate, and must be in range). Reads it back exactly. For data made or checked
/// element by element, not for bulk.
void store_element(std::byte* at, DataType type, double value);
double load_element(const std::byte* at, DataType type);

}  // namespace gradwire
