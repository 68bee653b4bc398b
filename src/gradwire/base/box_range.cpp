#include "gradwire/base/box_range.h"

#include <algorithm>

namespace gradwire {
namespace {

/// Walks over the runs of a range that are consecutive in the tensor.
class Runs {
 public:
  explicit Runs(const BoxRange& range) : part_(range.part), left_(range.count) {
    find_run_length();
    if (left_ == 0) return;
    row_ = range.begin / run_;
    enter_row(range.begin % run_);
  }

  bool done() const { return left_ == 0; }
  std::int64_t in_tensor() const { return in_tensor_; }
  std::int64_t in_range() const { return in_range_; }
  std::int64_t count() const { return count_; }

  /// Skips elements of the current run.
  void skip(std::int64_t elements) {
    in_tensor_ += elements;
    in_range_ += elements;
    count_ -= elements;
    left_ -= elements;
    if (count_ > 0 || left_ == 0) return;
    ++row_;
    enter_row(0);
  }

 private:
  /// The box has all indices of the dimensions after `inner_`.
  void find_run_length() {
    const Shape shape = part_.box.shape();
    inner_ = shape.size();
    while (inner_ > 0 && shape[inner_ - 1] == part_.view[inner_ - 1]) {
      run_ *= part_.view[--inner_];
    }
    if (inner_ > 0) {
      stride_ = run_;
      run_ *= shape[--inner_];
    }
  }

  void enter_row(std::int64_t offset) {
    std::int64_t row = row_;
    std::int64_t stride = stride_;
    in_tensor_ = offset;
    if (inner_ < part_.view.size() && stride_ > 0) {
      in_tensor_ += part_.box.begin[inner_] * stride;
      stride *= part_.view[inner_];
    }
    for (std::size_t d = inner_; d-- > 0;) {
      const std::int64_t extent = part_.box.end[d] - part_.box.begin[d];
      in_tensor_ += (part_.box.begin[d] + row % extent) * stride;
      row /= extent;
      stride *= part_.view[d];
    }
    count_ = std::min(run_ - offset, left_);
  }

  const TensorPart& part_;
  std::int64_t left_;
  std::int64_t run_ = 1;     ///< Elements of a whole run.
  std::int64_t stride_ = 0;  ///< Stride of dimension inner_; 0: the whole tensor is one run.
  std::size_t inner_ = 0;
  std::int64_t row_ = 0;
  std::int64_t in_tensor_ = 0;
  std::int64_t in_range_ = 0;
  std::int64_t count_ = 0;
};

}  // namespace

TensorPart whole_part(const Shape& shape) {
  return {shape, whole_box(shape)};
}

std::vector<SharedRun> shared_runs(const BoxRange& first, const BoxRange& second) {
  std::vector<SharedRun> shared;
  Runs a(first);
  Runs b(second);
  while (!a.done() && !b.done()) {
    const std::int64_t ahead = b.in_tensor() - a.in_tensor();
    if (ahead > 0) {
      a.skip(std::min(ahead, a.count()));
    } else if (ahead < 0) {
      b.skip(std::min(-ahead, b.count()));
    } else {
      const std::int64_t count = std::min(a.count(), b.count());
      shared.push_back({a.in_range(), b.in_range(), count});
      a.skip(count);
      b.skip(count);
    }
  }
  return shared;
}

}  // namespace gradwire
