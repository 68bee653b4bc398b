#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Work.hpp>

#include "gradwire/train/zero/unit_exchange.h"

namespace gradwire {

/// Base of exchanges whose operations are c10d::Works. Tracks operations in flight, and traces them
/// and the waits.
class WorkExchange : public UnitExchange {
 public:
  bool reduced(std::size_t index) override;
  void wait_reduce(std::size_t index) override { wait(reductions_.at(index)); }
  void wait_gather(std::size_t index) override { wait(gathers_.at(index)); }

 protected:
  /// One operation; wait() runs `finish` after completion.
  struct Operation {
    c10::intrusive_ptr<c10d::Work> work;
    std::function<void()> finish;
    std::string name;
    std::int64_t step = -1;
    Time begin{};
    std::uint64_t bytes = 0;
  };

  WorkExchange(std::size_t units, TraceRecorder* trace)
      : trace_(trace), reductions_(units), gathers_(units) {}

  /// Call before an operation starts; store its work in the result.
  Operation& begin_reduction(std::size_t index, const torch::Tensor& unit);
  Operation& begin_gather(std::size_t index, const torch::Tensor& unit);

 private:
  Operation begun(const char* kind, std::size_t index, const torch::Tensor& unit) const;
  void wait(Operation& slot);

  TraceRecorder* trace_;
  std::vector<Operation> reductions_;
  std::vector<Operation> gathers_;
};

}  // namespace gradwire
