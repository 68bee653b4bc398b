#include <condition_variable>
#include <map>
#include <mutex>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/comm/rendezvous.h"
#include "tests/comm/rendezvous_jobs.h"

namespace gradwire {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using test::connect_all;
using test::expect_connected;
using test::job_of;
using test::whole_job;
using test::within;
using testing::AllOf;
using testing::HasSubstr;

/// A store as a launcher brings one.
class MemoryStore final : public Store {
 public:
  Status set(const std::string& key, const std::string& value) override {
    const std::lock_guard lock(mutex_);
    values_[key] = value;
    changed_.notify_all();
    return {};
  }

  Result<std::string> get(const std::string& key, Duration timeout) override {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, timeout, [&] { return values_.contains(key); })) {
      return failure(ErrorKind::timeout, "not there: " + key);
    }
    return values_[key];
  }

  const std::map<std::string, std::string>& values() const { return values_; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
};

std::vector<Job> launched_job(int world_size) {
  // Nothing of ours may use the port: the launcher does.
  auto jobs = whole_job(world_size, /*port=*/1);
  for (Job& job : jobs) {
    job.secret.clear();
    job.launcher_store = true;
    job.launcher = "torchrun";
  }
  return jobs;
}

TEST(RendezvousInGivenStore, GivenStoreBringsAddressesAndASecret) {
  MemoryStore store;
  auto meshes = connect_all(launched_job(4), within(seconds(30)), &store);
  expect_connected(meshes);
  for (const auto& [key, value] : store.values()) {
    EXPECT_THAT(key, testing::StartsWith("gradwire/0/"));
  }
  EXPECT_EQ(store.values().at("gradwire/0/secret").size(), 64u);
}

TEST(RendezvousInGivenStore, EncryptionNeedsASecretThatIsNotInTheStore) {
  MemoryStore store;
  auto jobs = launched_job(2);
  for (Job& job : jobs) job.encryption = true;
  for (const auto& mesh : connect_all(jobs, within(seconds(30)), &store)) {
    ASSERT_FALSE(mesh);
    EXPECT_EQ(mesh.error().kind, ErrorKind::invalid_argument);
    EXPECT_THAT(mesh.error().message, HasSubstr("set GRADWIRE_SECRET"));
  }
  for (Job& job : jobs) job.secret = "of our own";
  auto meshes = connect_all(jobs, within(seconds(30)), &store);
  expect_connected(meshes);
}

TEST(RendezvousInGivenStore, OneGivenStoreServesSeveralCommunicators) {
  MemoryStore store;
  for (const char* scope : {"first", "second"}) {
    RendezvousOptions options = within(seconds(30));
    options.scope = scope;
    auto meshes = connect_all(launched_job(3), options, &store);
    expect_connected(meshes);
  }
  EXPECT_NE(store.values().at("gradwire/first/secret"),
            store.values().at("gradwire/second/secret"));
}

TEST(RendezvousInGivenStore, GivenStoreNamesMissingRanksToo) {
  MemoryStore store;
  auto jobs = launched_job(4);
  jobs.erase(jobs.begin() + 1);
  const auto meshes = connect_all(jobs, within(milliseconds(300)), &store);
  for (const auto& mesh : meshes) {
    ASSERT_FALSE(mesh);
    EXPECT_THAT(mesh.error().message, HasSubstr("rank 1 has not joined"));
  }
}

TEST(RendezvousInGivenStore, PlacesThatCannotReachEachOtherAreNamedAtOnce) {
  MemoryStore store;
  ASSERT_TRUE(
      store.set("gradwire/0/place/1",
                R"({"host":"b","rails":[{"address":"10.0.0.2:1234","interface":"eth0"}]})"));
  Job job = job_of(0, 2, /*port=*/1);
  const auto mesh = connect_mesh(job, within(seconds(60)), &store);
  ASSERT_FALSE(mesh);
  EXPECT_EQ(mesh.error().kind, ErrorKind::invalid_argument);
  EXPECT_THAT(mesh.error().message, HasSubstr("and rank 1 (host b, 10.0.0.2:1234 over eth0) cannot "
                                              "reach each other"));
}

TEST(RendezvousInGivenStore, ALaunchersStoreMustBeGiven) {
  const auto mesh = connect_mesh(launched_job(2)[0], within(seconds(5)));
  ASSERT_FALSE(mesh);
  EXPECT_EQ(mesh.error().kind, ErrorKind::invalid_argument);
  EXPECT_THAT(mesh.error().message, HasSubstr("torchrun keeps its own store"));
}

TEST(RendezvousInGivenStore, ARankThatHasGoneSinceIsNamed) {
  MemoryStore store;
  auto jobs = launched_job(2);
  // Rank 0 left its place and died: rank 1 finds all places, but nobody there.
  const SocketAddress gone = local_address(*listen_on(*SocketAddress::of("127.0.0.1", 0)));
  const auto place = [](const SocketAddress& address) {
    return fmt::format(
        R"("{{\"host\":\"b\",\"rails\":[{{\"address\":\"{}\",\"interface\":\"lo\"}}]}}")",
        address.to_string());
  };
  const SocketAddress own = *SocketAddress::parse("127.0.0.1:1");
  ASSERT_TRUE(store.set("gradwire/0/secret", "s"));
  ASSERT_TRUE(store.set("gradwire/0/places/0", fmt::format("[{},{}]", place(gone), place(own))));
  const auto mesh = connect_mesh(jobs[1], within(seconds(30)), &store);
  ASSERT_FALSE(mesh);
  EXPECT_EQ(mesh.error().kind, ErrorKind::disconnected);
  EXPECT_THAT(mesh.error().message,
              AllOf(HasSubstr("rank 0 (host b, " + gone.to_string()), HasSubstr("it has ended")));
}

TEST(RendezvousInGivenStore, NonsenseInAStoreIsAnErrorNotACrash) {
  for (const char* nonsense :
       {"", "[", "[1,2]", "{}", "[\"{}\",\"{}\"]", "[\"x\"]", "null", "{\"failed\":1}",
        "[\"{\\\"rails\\\":7}\",\"\"]", "[\"{\\\"rails\\\":[]}\",\"{\\\"rails\\\":[7]}\"]"}) {
    MemoryStore store;
    ASSERT_TRUE(store.set("gradwire/0/secret", "s"));
    ASSERT_TRUE(store.set("gradwire/0/places/0", nonsense));
    const auto mesh = connect_mesh(launched_job(2)[1], within(seconds(30)), &store);
    ASSERT_FALSE(mesh) << nonsense;
    EXPECT_EQ(mesh.error().kind, ErrorKind::corrupted) << nonsense;
  }
}

}  // namespace
}  // namespace gradwire
