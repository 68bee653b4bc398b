#include "gradwire/torch/store.h"

#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "gradwire/torch/init.h"
#include "tests/support/temporary_folder.h"

namespace gradwire::test {
namespace {

TEST(C10dStore, GivesBackWhatWasSetWhateverTheBytes) {
  C10dStore store(c10::make_intrusive<c10d::HashStore>());
  const std::string bytes("\0\xff\n", 3);
  ASSERT_TRUE(store.set("key", bytes));
  EXPECT_EQ(store.get("key", std::chrono::seconds(5)).value(), bytes);
}

TEST(C10dStore, AKeyThatNobodySetsTimesOut) {
  const TemporaryFolder folder;
  const std::vector<c10::intrusive_ptr<c10d::Store>> stores{
      c10::make_intrusive<c10d::HashStore>(),
      c10::make_intrusive<c10d::FileStore>(folder / "store", 1)};
  for (const auto& each : stores) {
    C10dStore store(each);
    const auto result = store.get("nobody", std::chrono::milliseconds(10));
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().kind, ErrorKind::timeout);
    EXPECT_THAT(result.error().message, ::testing::HasSubstr("'nobody'"));
  }
}

void meet_and_add(std::uint16_t port) {
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([=] {
      bootstrap::Job job;
      job.rank = rank;
      job.world_size = 3;
      job.master_port = port;
      job.launcher_store = true;
      job.launcher = "torchrun";
      const auto group = init(job);
      std::vector<at::Tensor> tensors{torch::full({4}, rank + 1.0)};
      group->allreduce(tensors)->wait();
      EXPECT_TRUE(tensors[0].eq(6).all().item<bool>());
    });
  }
}

TEST(LauncherStore, RanksMeetThroughTheStoreThatTorchrunServes) {
  c10d::TCPStoreOptions options;
  options.port = 0;
  options.isServer = true;
  options.waitWorkers = false;
  const auto server = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
  meet_and_add(server->getPort());
  meet_and_add(server->getPort());  // The workers restart: keys of the earlier run still exist.
}

TEST(LauncherStore, NobodyThereIsAnErrorThatSaysWhere) {
  bootstrap::Job job;
  job.world_size = 2;
  job.master_port = 1;
  job.launcher_store = true;
  job.launcher = "torchrun";
  try {
    open_launcher_store(job, std::chrono::milliseconds(200));
    FAIL() << "somebody answered";
  } catch (const Exception& error) {
    EXPECT_EQ(error.kind(), ErrorKind::disconnected);
    EXPECT_THAT(error.what(), ::testing::HasSubstr("127.0.0.1:1"));
  }
}

}  // namespace
}  // namespace gradwire::test
