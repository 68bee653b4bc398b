#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gradwire/gradient/make_averager.h"
#include "tests/comm/local_job.h"

/// Shared by tests of averagers: jobs that average synthetic gradients.
namespace gradwire::test {

/// Per bucket.
using Gradients = std::vector<std::vector<float>>;

/// Wraps a communicator owned by the test as a shared_ptr, which averagers require.
std::shared_ptr<Communicator> shared(Communicator& communicator);

/// Buckets of these numbers of elements, each with a matrix "bN.weight" and the rest, "bN.bias".
std::vector<BucketShape> shapes_of(const std::vector<std::size_t>& counts);

/// Approximately normally distributed values, determined by the arguments.
std::vector<float> draw_gradient(std::size_t count, std::uint64_t seed);
Gradients draw_gradients(const std::vector<BucketShape>& shapes, Rank rank, std::uint64_t step);

/// Starts all buckets, waits for them in an order drawn from the seed, and ends the step. Between
/// calls the rank yields to the others a random number of times.
void average_step(Averager& averager, Gradients& gradients, std::uint64_t seed);

/// Contents of the ranks' buckets after each step: by rank, step.
using History = std::vector<std::vector<Gradients>>;

/// Runs `steps` steps of draw_gradients() on every rank.
History average_steps(LocalJob& job, const std::vector<BucketShape>& shapes,
                      const AveragerOptions& options, int steps);

/// Returns the mean over ranks of draw_gradients(), in double precision.
std::vector<std::vector<double>> true_mean(const std::vector<BucketShape>& shapes, int ranks,
                                           std::uint64_t step);

/// |a - b| / |b|, as vectors.
double relative_error(const std::vector<double>& a, const std::vector<double>& b);

/// A copy of live state.
class StateCopy {
 public:
  explicit StateCopy(Averager& averager);
  std::vector<Averager::SavedState> saved() const;
  /// Returns the float32 values under a name; empty if there are none.
  std::vector<float> values(const std::string& name) const;

 private:
  struct Entry {
    std::string name;
    DataType type;
    std::size_t count;
    std::vector<std::byte> bytes;
  };
  std::vector<Entry> entries_;
};

/// All codecs, as users write them, with their names in tests.
std::vector<std::string> all_codecs();
std::string test_name(const std::string& codec);

}  // namespace gradwire::test
