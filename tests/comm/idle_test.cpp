#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/base/cpu.h"
#include "tests/support/local_job.h"

/// Idle ranks leave the processors to ranks that compute.
namespace gradwire::test {
namespace {

class Idle : public testing::TestWithParam<Wire> {};

TEST_P(Idle, RanksAndAWaitingReceiverUseNoCpu) {
  LocalJob job(4, {}, {.wire = GetParam()});
  const double before = cpu_seconds_used();
  const auto errors = job.run([](Rank rank, Communicator& c) {
    if (rank != 0) return;
    std::vector<float> data(1000);
    const LentSpan lent{data.data(), data.size(), DataType::float32, nullptr};
    c.recv(lent, 1, 0, {.timeout = std::chrono::seconds(1)}).wait();
  });
  EXPECT_LT(cpu_seconds_used() - before, 0.2) << "one that spins takes a second";
  EXPECT_THAT(errors[0], testing::HasSubstr("timeout of 1 s"));  // It did wait.
}

INSTANTIATE_TEST_SUITE_P(Over, Idle, testing::Values(Wire::shm, Wire::tcp, Wire::tls),
                         [](const auto& given) { return name_of(given.param); });

}  // namespace
}  // namespace gradwire::test
