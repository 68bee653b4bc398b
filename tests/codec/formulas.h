#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>

/// How far from the values what is decoded may be, from the formulas in the codecs' sources, which
/// are written down here once more.
namespace gradwire::testing {

/// Values that a codec encodes together.
std::size_t block_size_of(const std::string& spec);

/// How far a value may be off, if the codec promises something of each.
std::optional<double> allowed_error(const std::string& spec, std::span<const float> block,
                                    float value);

/// How long the vector of a block's errors may be, squared, if the codec promises that.
std::optional<double> allowed_square(const std::string& spec, std::span<const float> block);

}  // namespace gradwire::testing
