#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "gradwire/base/bytes.h"

namespace gradwire::net {

/// FIFO of bytes.
class ByteQueue {
 public:
  std::size_t size() const { return bytes_.size() - begin_; }
  bool empty() const { return size() == 0; }

  void push(ConstBytes bytes) {
    // Move only when at least half is consumed, so that each byte is moved about once on average.
    if (begin_ > size()) {
      bytes_.erase(bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(begin_));
      begin_ = 0;
    }
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }

  /// Pops bytes into `into`, which must not be larger than size().
  void pop(Bytes into) {
    std::copy_n(bytes_.begin() + static_cast<std::ptrdiff_t>(begin_), into.size(), into.begin());
    begin_ += into.size();
  }

  void clear() {
    bytes_.clear();
    begin_ = 0;
  }

 private:
  std::vector<std::byte> bytes_;
  std::size_t begin_ = 0;
};

}  // namespace gradwire::net
