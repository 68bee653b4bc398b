#pragma once

#include <cstdint>

namespace gradwire {

/// A synthetic task of click-through prediction.
struct ClickOptions {
  std::int64_t samples = 40'000;  ///< For training; a quarter as many more are for testing.
  std::int64_t rows = 10'000;     ///< Ids of all categorical fields together.
  std::int64_t fields = 8;        ///< Categorical fields, each with its share of the ids.
  std::int64_t dense = 4;         ///< Dense features, at least one.
  std::uint64_t seed = 1;
};

}  // namespace gradwire
