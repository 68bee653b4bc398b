#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "gradwire/base/random.h"

namespace gradwire::servers {

/// Elements that a thread has updated.
struct UpdateCounts {
  std::int64_t written = 0;
  std::int64_t sampled = 0;  ///< Elements of these of which it is known if an update was lost.
  std::int64_t lost = 0;     ///< Those of the samples that overwrote another thread's update.

  UpdateCounts& operator+=(const UpdateCounts& other);
};

struct UpdateOptions {
  /// One of this many elements, on average, is sampled.
  std::int64_t sample_every = 4096;
  std::uint64_t seed = 1;
  /// Called between the load and the store of a sampled element; may be null. For tests.
  std::function<void()> between;
};

/// The updates of one of several threads that write floats without locks (Hogwild!: Niu, Recht, Re,
/// Wright, NeurIPS 2011). Each element is loaded and stored by relaxed atomic operations, on x86
/// plain moves. So an update is lost if another thread's store falls between the two. The stores of
/// some elements, drawn at random, are compare-exchanges against the loaded value: a failed one
/// counts as a lost update, and the element is then overwritten as any other.
///
/// Elements are rounded once (fused multiply-add), as by libtorch on processors that have the
/// instruction. Zeros are skipped: they would overwrite other threads' updates with older values.
/// Several threads may update the same floats, each with an object of its own.
class LockFreeUpdates {
 public:
  /// Throws Exception(invalid_argument) if `sample_every` is not positive.
  explicit LockFreeUpdates(UpdateOptions options);

  /// Adds `factor` * values[i] to shared[i] for `count` elements.
  void add(float* shared, const float* values, std::size_t count, float factor);
  /// Adds `factor` times row i of `values` to row rows[i] of `shared`, in the order of i, for
  /// `count` rows of `width` elements.
  void add_rows(float* shared, std::size_t width, const std::int64_t* rows, const float* values,
                std::size_t count, float factor);

  const UpdateCounts& counts() const { return counts_; }

 private:
  void add_elements(float* shared, const float* values, std::size_t count, float factor);
  void add_sampled(float& shared, float value, float factor);
  void draw();

  UpdateOptions options_;
  Random random_;
  UpdateCounts counts_;
  std::size_t next_ = 0;  ///< Elements before the next sample.
};

// The sums of squares of Adagrad (Duchi, Hazan, Singer, JMLR 12, 2011), which threads share too.
// Their updates are not counted.

/// Adds the squares of `values` to `shared`, rounded once, and writes the new values to `sums`.
void add_squares(float* shared, const float* values, float* sums, std::size_t count);
/// Adds row i of `squares` to row rows[i] of `shared`, and writes the new values to row i of
/// `sums`.
void add_squares_to_rows(float* shared, std::size_t width, const std::int64_t* rows,
                         const float* squares, float* sums, std::size_t count);

/// Copies floats that other threads may be updating.
void read_shared(const float* shared, float* values, std::size_t count);

}  // namespace gradwire::servers
