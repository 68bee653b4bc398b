#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/exception.h>

#include "gradwire/host/torch_exchange.h"
#include "tests/support/error_of.h"

namespace gradwire::test {
namespace {

class FailedWork final : public c10d::Work {
 public:
  bool wait(std::chrono::milliseconds) override { throw std::runtime_error("rank 1 is gone"); }
};

enum class Outcome {
  refused,  ///< The backend lacks the operation.
  failed,   ///< The other rank is gone.
  late,     ///< The call itself fails: the store does not answer.
};

/// A backend of two ranks with this outcome of flat collectives.
class TestedBackend final : public c10d::Backend {
 public:
  explicit TestedBackend(Outcome outcome) : c10d::Backend(0, 2), outcome_(outcome) {}

  const std::string getBackendName() const override { return "tested"; }
  c10::intrusive_ptr<c10d::Work> _reduce_scatter_base(
      at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& options) override {
    if (outcome_ == Outcome::refused)
      return c10d::Backend::_reduce_scatter_base(output, input, options);
    return failed();
  }
  c10::intrusive_ptr<c10d::Work> _allgather_base(at::Tensor& output, at::Tensor& input,
                                                 const c10d::AllgatherOptions& options) override {
    if (outcome_ == Outcome::refused) return c10d::Backend::_allgather_base(output, input, options);
    return failed();
  }

 private:
  c10::intrusive_ptr<c10d::Work> failed() const {
    if (outcome_ == Outcome::late) C10_THROW_ERROR(DistStoreError, "wait timeout after 10 ms");
    return c10::make_intrusive<FailedWork>();
  }

  Outcome outcome_;
};

std::unique_ptr<exchange::Exchange> exchange_over(Outcome outcome) {
  const auto custom = c10d::ProcessGroup::BackendType::CUSTOM;
  auto group = c10::make_intrusive<c10d::ProcessGroup>(c10::intrusive_ptr<c10d::Store>(), 0, 2);
  group->setBackend(c10::DeviceType::CPU, custom, c10::make_intrusive<TestedBackend>(outcome));
  group->setDefaultBackend(custom);
  return group_exchange(group, {c10::Device(c10::kCPU)}, /*sharded=*/true);
}

TEST(GroupExchange, TakesARefusalForALackingOperation) {
  EXPECT_NE(exchange_over(Outcome::refused), nullptr);
}

TEST(GroupExchange, ThrowsTheErrorOfAnOperationThatFails) {
  EXPECT_THAT(error_of([] { exchange_over(Outcome::failed); }),
              ::testing::HasSubstr("rank 1 is gone"));
  EXPECT_THAT(error_of([] { exchange_over(Outcome::late); }), ::testing::HasSubstr("wait timeout"));
}

}  // namespace
}  // namespace gradwire::test
