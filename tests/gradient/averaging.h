#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gradwire/gradient/make_averager.h"
#include "tests/comm/local_job.h"

/// What tests of averagers share: jobs that average made-up gradients.
namespace gradwire::test {

/// Per bucket.
using Gradients = std::vector<std::vector<float>>;

/// A communicator that a test owns, as averagers want it.
std::shared_ptr<Communicator> shared(Communicator& communicator);

/// Buckets of these many elements, each of a matrix "bN.weight" and what is left, "bN.bias".
std::vector<BucketShape> shapes_of(const std::vector<std::size_t>& counts);

/// About normally distributed, the same for the same arguments.
std::vector<float> draw_gradient(std::size_t count, std::uint64_t seed);
Gradients draw_gradients(const std::vector<BucketShape>& shapes, Rank rank, std::uint64_t step);

/// Starts all buckets, waits for them, in an order drawn from the seed, and ends the step. Between
/// calls the rank gives the others time, a random number of times.
void average_step(Averager& averager, Gradients& gradients, std::uint64_t seed);

/// What ranks had in their buckets after each step: by rank, step.
using History = std::vector<std::vector<Gradients>>;

/// `steps` steps of draw_gradients() on every rank.
History average_steps(LocalJob& job, const std::vector<BucketShape>& shapes,
                      const AveragerOptions& options, int steps);

/// The mean over ranks of draw_gradients(), in double precision.
std::vector<std::vector<double>> true_mean(const std::vector<BucketShape>& shapes, int ranks,
                                           std::uint64_t step);

/// |a - b| / |b|, as vectors.
double relative_error(const std::vector<double>& a, const std::vector<double>& b);

/// A copy of what is live.
class StateCopy {
 public:
  explicit StateCopy(Averager& averager);
  std::vector<Averager::SavedState> saved() const;
  /// Float32 values under a name; empty if there are none.
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

/// Every codec that can be made, as users write it, and what it is called in a test's name.
std::vector<std::string> all_codecs();
std::string test_name(const std::string& codec);

}  // namespace gradwire::test
