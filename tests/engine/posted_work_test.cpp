#include <stdexcept>

#include <gtest/gtest.h>

#include "gradwire/engine/engine.h"

namespace gradwire::engine {
namespace {

/// An engine whose operations end when the test says so.
class EngineOfTheTest final : public Engine {
 public:
  void post(OperationRequest) override {}
  void post(std::vector<OperationRequest>) override {}
  Time now() const override { return {}; }
  void wait(const PostedWork&, Time) override {}
  void abort(Error) override {}
  void abort_with(Rank, Error) override {}
  void close(Close, const std::string&) override {}
  Executor::Traffic traffic() override { return {}; }

  void publish_ended() { publish(take_ended()); }
};

TEST(PostedWork, ACallbackThatThrowsKeepsNoOtherOperationInFlight) {
  const auto engine = std::make_shared<EngineOfTheTest>();
  const auto first = std::make_shared<PostedWork>(engine);
  const auto second = std::make_shared<PostedWork>(engine);
  int called = 0;
  first->on_done([](const Work&) { throw std::runtime_error("no thread can be started"); });
  first->on_done([&](const Work&) { ++called; });
  second->on_done([&](const Work&) { ++called; });
  first->succeeded();
  second->succeeded();
  EXPECT_THROW(engine->publish_ended(), std::runtime_error);
  EXPECT_TRUE(first->done());
  EXPECT_TRUE(second->done());
  EXPECT_EQ(called, 2);
}

}  // namespace
}  // namespace gradwire::engine
