#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "gradwire/train/exchange/torch_exchange.h"
#include "tests/support/error_of.h"

namespace gradwire::test {
namespace {

class FailedWork final : public c10d::Work {
 public:
  bool wait(std::chrono::milliseconds) override { throw std::runtime_error("rank 1 is gone"); }
};

/// A backend of two ranks that refuses flat collectives, or whose other rank is gone.
class TestedBackend final : public c10d::Backend {
 public:
  explicit TestedBackend(bool refuses) : c10d::Backend(0, 2), refuses_(refuses) {}

  const std::string getBackendName() const override { return "tested"; }
  c10::intrusive_ptr<c10d::Work> _reduce_scatter_base(
      at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& options) override {
    if (refuses_) return c10d::Backend::_reduce_scatter_base(output, input, options);
    return c10::make_intrusive<FailedWork>();
  }
  c10::intrusive_ptr<c10d::Work> _allgather_base(at::Tensor& output, at::Tensor& input,
                                                 const c10d::AllgatherOptions& options) override {
    if (refuses_) return c10d::Backend::_allgather_base(output, input, options);
    return c10::make_intrusive<FailedWork>();
  }

 private:
  bool refuses_;
};

std::unique_ptr<exchange::Exchange> exchange_over(bool refuses) {
  const auto custom = c10d::ProcessGroup::BackendType::CUSTOM;
  auto group = c10::make_intrusive<c10d::ProcessGroup>(c10::intrusive_ptr<c10d::Store>(), 0, 2);
  group->setBackend(c10::DeviceType::CPU, custom, c10::make_intrusive<TestedBackend>(refuses));
  group->setDefaultBackend(custom);
  return group_exchange(group, {c10::Device(c10::kCPU)}, /*sharded=*/true);
}

TEST(GroupExchange, TakesARefusalForALackingOperation) {
  EXPECT_NE(exchange_over(/*refuses=*/true), nullptr);
}

TEST(GroupExchange, ThrowsTheErrorOfAnOperationThatFails) {
  EXPECT_THAT(error_of([] { exchange_over(/*refuses=*/false); }),
              ::testing::HasSubstr("rank 1 is gone"));
}

}  // namespace
}  // namespace gradwire::test
