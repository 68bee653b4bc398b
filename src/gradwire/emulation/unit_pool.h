#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

namespace gradwire {

/// Pool of reusable buffers: buffers of about the same size are allocated once. A new buffer is
/// allocated only if no free one is large enough.
class UnitPool {
 public:
  /// Returns a buffer of `count` floats of undefined values.
  std::span<float> take(std::size_t count);
  void release(std::span<float> buffer);

  /// Maximum bytes allocated from the system at any time.
  std::size_t peak_bytes() const { return peak_ * sizeof(float); }

 private:
  struct Buffer {
    std::unique_ptr<float[]> memory;  // NOLINT
    std::size_t capacity = 0;
    bool free = false;
  };

  Buffer* find_smallest_fit(std::size_t count);
  void free_largest_unused();

  std::vector<Buffer> buffers_;
  std::size_t allocated_ = 0;  ///< Floats.
  std::size_t peak_ = 0;
};

}  // namespace gradwire
