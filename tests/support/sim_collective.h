#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "gradwire/base/random.h"
#include "gradwire/engine/operations/operation.h"
#include "gradwire/engine/simulated_job.h"
#include "gradwire/schedule/catalogue.h"

/// Shared by the tests of simulated and of real collectives: cases, data, and the expected results.
namespace gradwire::test {

/// Records how an operation on one rank ended.
class Outcome final : public engine::Completion {
 public:
  /// `clock`, if given, records when.
  explicit Outcome(const net::SimNetwork* clock = nullptr) : clock_(clock) {}

  void succeeded() override { ++successes; }
  void failed(const Error& error) override {
    ++failures;
    last = error;
    if (clock_ != nullptr) at = clock_->now();
  }
  bool done() const { return successes + failures > 0; }

  int successes = 0;
  int failures = 0;
  Error last;
  Time at{};

 private:
  const net::SimNetwork* clock_;
};

struct Case {
  schedule::Collective collective = schedule::Collective::all_reduce;
  std::string algorithm = "ring";
  int ranks = 4;
  std::size_t count = 1000;  ///< Elements of one rank's part, if it has one, or of all.
  DataType type = DataType::float32;
  ReduceOp op = ReduceOp::sum;
  Rank root = 0;
  bool in_place = true;  ///< all_reduce, and the root of reduce.
  int lane = 0;
  std::optional<topology::Topology> topology = {};  ///< Empty: every rank on its own host.
  bool rough = false;  ///< Elements whose sums round, so that the order of summation shows.

  /// Returns true if only the root has an output.
  bool ends_at_root() const {
    return collective == schedule::Collective::reduce || collective == schedule::Collective::gather;
  }
  std::size_t total() const {
    return schedule::has_parts(collective) ? count * static_cast<std::size_t>(ranks) : count;
  }
  std::size_t input_count() const;
  schedule::Schedule schedule() const;
  std::size_t output_count() const;
  /// `topology`, or else the hosts that it stands for.
  topology::Topology hosts() const { return topology.value_or(topology::Topology::uniform(ranks)); }
  std::string describe() const;
};

using Memory = std::vector<std::byte>;

/// Random small elements, determined by seed, rank and case.
Memory make_input(const Case& c, Rank rank, std::uint64_t seed);

/// Expects `output` to be bitwise equal to the result of all ranks' inputs. Only for cases that are
/// not rough.
void expect_right(const Case& c, Rank rank, const std::vector<Memory>& inputs,
                  const Memory& output);
bool is_right(const Case& c, Rank rank, const std::vector<Memory>& inputs, const Memory& output);

/// The request of one rank. The memories must outlive the operation.
engine::OperationRequest make_request(const Case& c, Rank rank, const Memory& input, Memory& output,
                                      std::shared_ptr<engine::Completion> completion);

/// The results of a case, by rank.
struct CaseResult {
  std::vector<Memory> outputs;
  std::vector<std::size_t> payload_bytes;  ///< Sent.
};

/// The inputs of all ranks.
std::vector<Memory> make_inputs(const Case& c, std::uint64_t seed);

/// Runs a case in a simulated job on the case's hosts. Fails the test if the operation fails on any
/// rank, does not end, or writes to an input.
CaseResult simulate(const Case& c, const std::vector<Memory>& inputs,
                    const net::SimOptions& network, const engine::ExecutorOptions& options = {});

/// Returns, by rank, the bytes of the sends in the case's schedule.
std::vector<std::size_t> scheduled_bytes(const Case& c);

}  // namespace gradwire::test
