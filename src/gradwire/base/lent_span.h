#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include "gradwire/base/element.h"

namespace gradwire {

/// Memory lent to an operation until it has completed. `keep_alive` (optional) owns the memory
/// until then. Without it, the caller must keep the memory alive.
struct LentSpan {
  void* data = nullptr;
  std::size_t count = 0;  ///< Elements.
  DataType type = DataType::float32;
  std::shared_ptr<const void> keep_alive;
};

/// Read-only LentSpan.
struct LentConstSpan {
  const void* data = nullptr;
  std::size_t count = 0;
  DataType type = DataType::float32;
  std::shared_ptr<const void> keep_alive;

  LentConstSpan() = default;
  LentConstSpan(const void* d, std::size_t n, DataType t, std::shared_ptr<const void> k = nullptr)
      : data(d), count(n), type(t), keep_alive(std::move(k)) {}
  // NOLINT: implicit on purpose; writable memory is also readable.
  LentConstSpan(const LentSpan& span)
      : data(span.data), count(span.count), type(span.type), keep_alive(span.keep_alive) {}
};

}  // namespace gradwire
