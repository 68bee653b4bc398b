#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

namespace gradwire {

/// Memory for what comes and goes, kept for the next one: buffers of about the same sizes are
/// allocated once, and none are added to while as many fit into what is free.
class UnitPool {
 public:
  /// A buffer of `count` floats of any value.
  std::span<float> take(std::size_t count);
  void give_back(std::span<float> buffer);

  /// The most bytes that it has had of the system at any time.
  std::size_t peak_bytes() const { return peak_ * sizeof(float); }

 private:
  struct Buffer {
    std::unique_ptr<float[]> memory;  // NOLINT
    std::size_t capacity = 0;
    bool free = false;
  };

  Buffer* smallest_that_holds(std::size_t count);
  void drop_one_that_is_free();

  std::vector<Buffer> buffers_;
  std::size_t allocated_ = 0;  ///< Floats.
  std::size_t peak_ = 0;
};

}  // namespace gradwire
