#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>

/// Maximum error of decoded values, by an independent implementation of the formulas in the codecs'
/// sources.
namespace gradwire::test {

/// Number of values that a codec encodes together.
std::size_t block_size_of(const std::string& spec);

/// Maximum error of a value, if the codec bounds single values.
std::optional<double> allowed_error(const std::string& spec, std::span<const float> block,
                                    float value);

/// Maximum squared norm of a block's errors, if the codec bounds that.
std::optional<double> allowed_square(const std::string& spec, std::span<const float> block);

}  // namespace gradwire::test
