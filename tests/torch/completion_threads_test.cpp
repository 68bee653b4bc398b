#include "gradwire/torch/completion_threads.h"

#include <future>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

namespace gradwire {
namespace {

TEST(CompletionThreads, AWaitingTaskDoesNotDelayOthers) {
  CompletionThreads threads;
  std::promise<void> open;
  std::promise<int> result;
  threads.run([&] {
    open.get_future().wait();
    result.set_value(7);
  });
  threads.run([&] { open.set_value(); });
  EXPECT_EQ(result.get_future().get(), 7);
}

TEST(CompletionThreads, OneThreadKeepsTheOrder) {
  std::vector<int> order;
  CompletionThreads one(1);
  for (int i = 0; i < 100; ++i) one.run([&order, i] { order.push_back(i); });
  one.close();
  ASSERT_EQ(order.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
}

TEST(CompletionThreads, AfterClosingTasksRunHere) {
  CompletionThreads threads;
  threads.close();
  bool ran = false;
  threads.run([&] { ran = true; });
  EXPECT_TRUE(ran);
}

TEST(CompletionThreads, ATaskMayCloseThem) {
  auto threads = std::make_shared<CompletionThreads>();
  std::promise<void> closed;
  threads->run([&] {
    threads->close();
    closed.set_value();
  });
  closed.get_future().wait();
}

}  // namespace
}  // namespace gradwire
