#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gradwire/exchange/exchange_state.h"
#include "gradwire/exchange/make_exchange.h"
#include "tests/support/local_job.h"

/// Shared by tests of exchanges: jobs that average synthetic gradients.
namespace gradwire::test {

/// Per bucket.
using Gradients = std::vector<std::vector<float>>;

/// Wraps a communicator owned by the test as a shared_ptr, which exchanges require.
std::shared_ptr<Communicator> shared(Communicator& communicator);

/// Buckets of these numbers of elements, each with a matrix "bN.weight" and the rest, "bN.bias".
std::vector<exchange::UnitShape> shapes_of(const std::vector<std::size_t>& counts);

/// Approximately normally distributed values, determined by the arguments.
std::vector<float> draw_gradient(std::size_t count, std::uint64_t seed);
Gradients draw_gradients(const std::vector<exchange::UnitShape>& shapes, Rank rank,
                         std::uint64_t step);

/// All-reduces of an exchange in flight, by unit.
class Started {
 public:
  explicit Started(exchange::Exchange& exchange) : exchange_(exchange) {}

  void start(std::size_t unit, LentSpan data, int priority) {
    works_[unit] = exchange_.all_reduce(unit, std::move(data), priority);
  }
  bool done(std::size_t unit) { return !works_[unit].valid() || works_[unit].done(); }
  /// Returns at once if nothing was started.
  void wait(std::size_t unit) {
    if (const Work work = std::exchange(works_[unit], {}); work.valid()) work.wait();
  }

 private:
  exchange::Exchange& exchange_;
  std::map<std::size_t, Work> works_;
};

/// Starts all buckets, waits for them in an order drawn from the seed, and ends the step. Between
/// calls the rank yields to the others a random number of times.
void average_step(exchange::Exchange& exchange, Gradients& gradients, std::uint64_t seed);

/// Contents of the ranks' buckets after each step: by rank, step.
using History = std::vector<std::vector<Gradients>>;

/// Runs `steps` steps of draw_gradients() on every rank.
History average_steps(LocalJob& job, const std::vector<exchange::UnitShape>& shapes,
                      const exchange::ExchangeOptions& options, int steps);

/// Returns the mean over ranks of draw_gradients(), in double precision.
std::vector<std::vector<double>> true_mean(const std::vector<exchange::UnitShape>& shapes,
                                           int ranks, std::uint64_t step);

/// |a - b| / |b|, as vectors.
double relative_error(const std::vector<double>& a, const std::vector<double>& b);

/// A copy of live state.
struct StateCopy : exchange::ExchangeStateCopy {
  explicit StateCopy(exchange::Exchange& exchange) : ExchangeStateCopy(exchange.state()) {}
  /// Returns the float32 values under a name; empty if there are none.
  std::vector<float> values(const std::string& name) const;
};

/// All codecs, as users write them, with their names in tests.
std::vector<std::string> all_codecs();
std::string test_name(const std::string& codec);

}  // namespace gradwire::test
