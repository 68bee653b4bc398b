#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

/// Test data for codecs.
namespace gradwire::test {

/// Every codec of the catalogue (without none), with some parameters.
std::vector<std::string> codec_specs();

/// Odd ones, those around block sizes, and one of many blocks.
std::vector<std::size_t> value_counts();

enum class Kind { gaussian, heavy, zeros, denormal, huge, constant, one_hot, nan, infinity };

/// All kinds; the last two have non-finite values.
std::vector<Kind> value_kinds();
std::string name_of(Kind kind);
bool has_only_finite(Kind kind);

std::vector<float> make_values(Kind kind, std::size_t count, std::uint64_t seed);

/// |x|^2.
double square(const std::vector<float>& x);

}  // namespace gradwire::test
