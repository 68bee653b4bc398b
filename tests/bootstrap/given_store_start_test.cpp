#include "gradwire/bootstrap/given_store_start.h"

#include <condition_variable>
#include <functional>
#include <future>
#include <map>
#include <mutex>
#include <optional>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/bootstrap/connect.h"
#include "gradwire/bootstrap/handshake/handshake.h"
#include "gradwire/bootstrap/mesh/mesh_builder.h"
#include "tests/support/host.h"
#include "tests/support/start_jobs.h"

namespace gradwire::bootstrap {
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

/// A store as provided by a launcher.
class MemoryStore final : public Store {
 public:
  Status set(const std::string& key, const std::string& value) override {
    {
      const std::lock_guard lock(mutex_);
      values_[key] = value;
      changed_.notify_all();
    }
    if (on_set) on_set(key, value);
    return {};
  }

  /// Called after each set(), on its thread.
  std::function<void(const std::string& key, const std::string& value)> on_set;

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

/// Returns the part of `key` after `prefix`, or nothing if `key` starts differently.
std::optional<std::string> behind(const std::string& prefix, const std::string& key) {
  if (!key.starts_with(prefix)) return std::nullopt;
  return key.substr(prefix.size());
}

/// Admits rank 1, which has no peers' addresses yet, to a generation with these endpoints.
void let_in(MemoryStore& store, const std::string& secret, const std::string& endpoints) {
  store.on_set = [&store, secret, endpoints](const std::string& key, const std::string& word) {
    if (key != "gradwire/0/nonce/1") return;
    ASSERT_TRUE(store.set("gradwire/0/made/secret", secret));
    ASSERT_TRUE(store.set("gradwire/0/made/endpoints/0", endpoints));
    ASSERT_TRUE(store.set("gradwire/0/generation/" + word, "made"));
  };
}

/// Returns the secret of rank 0's generation, once it is written.
std::string secret_in(const MemoryStore& store, const std::string& scope) {
  const std::string prefix = "gradwire/" + scope + "/";
  return store.values().at(prefix + store.values().at(prefix + "nonce/0") + "/secret");
}

std::vector<Job> launched_job(int world_size) {
  // The rendezvous must not use the port: it is the launcher's.
  auto jobs = whole_job(world_size, /*port=*/1);
  for (Job& job : jobs) {
    job.secret.clear();
    job.launcher_store = true;
    job.launcher = "torchrun";
  }
  return jobs;
}

TEST(GivenStoreStart, GivenStoreBringsAddressesAndASecret) {
  MemoryStore store;
  auto meshes = connect_all(launched_job(4), within(seconds(30)), &store);
  expect_connected(meshes);
  for (const auto& [key, value] : store.values()) {
    EXPECT_THAT(key, testing::StartsWith("gradwire/0/"));
  }
  EXPECT_EQ(secret_in(store, "0").size(), 64u);
}

TEST(GivenStoreStart, EncryptionNeedsASecretThatIsNotInTheStore) {
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

TEST(GivenStoreStart, OneGivenStoreServesSeveralCommunicators) {
  MemoryStore store;
  for (const char* scope : {"first", "second"}) {
    StartOptions options = within(seconds(30));
    options.scope = scope;
    auto meshes = connect_all(launched_job(3), options, &store);
    expect_connected(meshes);
  }
  EXPECT_NE(secret_in(store, "first"), secret_in(store, "second"));
}

// The store of torchrun when it restarts its workers, or of a program that recreates its process
// group.
TEST(GivenStoreStart, ASecondRendezvousInOneStoreSucceeds) {
  MemoryStore store;
  std::vector<std::string> secrets;
  for (int time = 0; time < 3; ++time) {
    auto meshes = connect_all(launched_job(3), within(seconds(30)), &store);
    expect_connected(meshes);
    secrets.push_back(secret_in(store, "0"));
  }
  EXPECT_NE(secrets[0], secrets[1]);
  EXPECT_NE(secrets[1], secrets[2]);
}

TEST(GivenStoreStart, RankZeroDetectsANonceOfAnEarlierRendezvous) {
  MemoryStore store;
  ASSERT_TRUE(store.set("gradwire/0/nonce/1", "of a rank that is no more"));
  const auto jobs = launched_job(2);
  std::promise<void> answered;
  store.on_set = [&](const std::string& key, const std::string&) {
    if (behind("gradwire/0/generation/", key) == "of a rank that is no more") answered.set_value();
  };
  auto late = std::async(std::launch::async, [&] {
    answered.get_future().wait();
    return connect(test::kNetwork, jobs[1], within(seconds(30)), &store);
  });
  std::vector<Result<Mesh>> meshes;
  meshes.push_back(connect(test::kNetwork, jobs[0], within(seconds(30)), &store));
  meshes.push_back(late.get());
  expect_connected(meshes);
}

TEST(GivenStoreStart, GivenStoreNamesMissingRanksToo) {
  MemoryStore store;
  auto jobs = launched_job(4);
  jobs.erase(jobs.begin() + 1);
  const auto meshes = connect_all(jobs, within(milliseconds(300)), &store);
  for (const auto& mesh : meshes) {
    ASSERT_FALSE(mesh);
    EXPECT_THAT(mesh.error().message, HasSubstr("rank 1 has not joined"));
  }
}

TEST(GivenStoreStart, EndpointsThatCannotReachEachOtherAreNamedAtOnce) {
  MemoryStore store;
  ASSERT_TRUE(store.set("gradwire/0/nonce/1", "word"));
  store.on_set = [&store](const std::string& key, const std::string& room) {
    if (key != "gradwire/0/generation/word") return;
    ASSERT_TRUE(
        store.set("gradwire/0/" + room + "/endpoint/word",
                  R"({"host":"b","rails":[{"address":"10.0.0.2:1234","interface":"eth0"}]})"));
  };
  Job job = job_of(0, 2, /*port=*/1);
  const auto mesh = connect(test::kNetwork, job, within(seconds(60)), &store);
  ASSERT_FALSE(mesh);
  EXPECT_EQ(mesh.error().kind, ErrorKind::invalid_argument);
  EXPECT_THAT(mesh.error().message, HasSubstr("and rank 1 (host b, 10.0.0.2:1234 over eth0) cannot "
                                              "reach each other"));
}

TEST(GivenStoreStart, ALaunchersStoreMustBeGiven) {
  const auto mesh = connect(test::kNetwork, launched_job(2)[0], within(seconds(5)));
  ASSERT_FALSE(mesh);
  EXPECT_EQ(mesh.error().kind, ErrorKind::invalid_argument);
  EXPECT_THAT(mesh.error().message, HasSubstr("torchrun keeps its own store"));
}

TEST(GivenStoreStart, ARankThatHasGoneSinceIsNamed) {
  MemoryStore store;
  auto jobs = launched_job(2);
  // Rank 0 wrote its endpoint and died: rank 1 finds all endpoints, but no process.
  const net::SocketAddress gone =
      net::local_address(*net::listen_on(*net::SocketAddress::of("127.0.0.1", 0)));
  const auto endpoint = [](const net::SocketAddress& address) {
    return fmt::format(
        R"("{{\"host\":\"b\",\"rails\":[{{\"address\":\"{}\",\"interface\":\"lo\"}}]}}")",
        address.to_string());
  };
  const net::SocketAddress own = *net::SocketAddress::parse("127.0.0.1:1");
  let_in(store, "s", fmt::format("[{},{}]", endpoint(gone), endpoint(own)));
  const auto mesh = connect(test::kNetwork, jobs[1], within(seconds(30)), &store);
  ASSERT_FALSE(mesh);
  EXPECT_EQ(mesh.error().kind, ErrorKind::disconnected);
  EXPECT_THAT(mesh.error().message,
              AllOf(HasSubstr("rank 0 (host b, " + gone.to_string()), HasSubstr("it has exited")));
}

/// A rank that the test drives step by step, in place of connect().
struct Puppet {
  Puppet(Store& store, int world_size)
      : job(job_of(1, world_size, /*port=*/1)),
        steps(store, "0", job, seconds(30)),
        listener(std::move(*net::listen_on(*net::SocketAddress::of("127.0.0.1", 0)))) {
    const net::Deadline deadline = net::Deadline::after(test::kClock, seconds(30));
    EXPECT_TRUE(steps.join(deadline));
    secret = steps.share_secret(deadline).value();
    const RankEndpoint endpoint = {
        .host = "puppet", .machine = "its own", .rails = {{net::local_address(listener), "lo"}}};
    endpoints = steps.exchange_endpoints(endpoint, deadline).value();
  }

  Job job;
  GivenStoreStart steps;
  net::Socket listener;
  std::string secret;
  std::vector<RankEndpoint> endpoints;
};

std::future<Result<Mesh>> start(const Job& job, Store& store) {
  return std::async(std::launch::async, [job, &store] {
    return connect(test::kNetwork, job, within(seconds(60)), &store);
  });
}

TEST(GivenStoreStart, TheReasonOfTheRankThatFailedIsToldToEveryRank) {
  MemoryStore store;
  const auto jobs = launched_job(3);
  auto zero = start(jobs[0], store);
  auto two = start(jobs[2], store);
  Puppet one(store, 3);
  EXPECT_EQ(one.steps.fail({ErrorKind::system, "no paper in the printer"}).message,
            "no paper in the printer");
  for (auto* outcome : {&zero, &two}) {
    const auto mesh = outcome->get();
    ASSERT_FALSE(mesh);
    EXPECT_EQ(mesh.error().kind, ErrorKind::system);
    EXPECT_THAT(
        mesh.error().message,
        AllOf(testing::StartsWith("rank 1 (host puppet, "),
              testing::EndsWith(") failed while the job started: no paper in the printer")));
  }
}

// A store of a launcher cannot tell that a process has died.
TEST(GivenStoreStart, ARankThatHangsUpWhileOthersConnectIsNamedOnEveryRank) {
  MemoryStore store;
  const auto jobs = launched_job(3);
  auto zero = start(jobs[0], store);
  auto two = start(jobs[2], store);
  Puppet one(store, 3);
  ASSERT_TRUE(connect_authenticated(test::kNetwork, one.endpoints[0].rails[0].address,
                                    {.secret = one.secret, .purpose = mesh_purpose("0")},
                                    {.from = 1, .to = 0, .world_size = 3},
                                    net::Deadline::after(test::kClock, seconds(30))));
  for (auto* outcome : {&zero, &two}) {
    const auto mesh = outcome->get();
    ASSERT_FALSE(mesh);
    EXPECT_EQ(mesh.error().kind, ErrorKind::disconnected);
    EXPECT_THAT(mesh.error().message,
                AllOf(HasSubstr("rank 1 (host puppet"), HasSubstr("closed its connection")));
  }
}

TEST(GivenStoreStart, AnotherWorldSizeIsNamed) {
  MemoryStore store;
  auto jobs = launched_job(2);
  jobs[1].world_size = 3;
  for (const auto& mesh : connect_all(jobs, within(seconds(60)), &store)) {
    ASSERT_FALSE(mesh);
    EXPECT_EQ(mesh.error().kind, ErrorKind::mismatch);
    EXPECT_THAT(mesh.error().message, HasSubstr("world size of 3, rank 0 with 2"));
  }
}

TEST(GivenStoreStart, NonsenseInAStoreIsAnErrorNotACrash) {
  for (const char* nonsense :
       {"", "[", "[1,2]", "{}", "[\"{}\",\"{}\"]", "[\"x\"]", "null", "{\"failed\":1}",
        "[\"{\\\"rails\\\":7}\",\"\"]", "[\"{\\\"rails\\\":[]}\",\"{\\\"rails\\\":[7]}\"]"}) {
    MemoryStore store;
    let_in(store, "s", nonsense);
    const auto mesh = connect(test::kNetwork, launched_job(2)[1], within(seconds(30)), &store);
    ASSERT_FALSE(mesh) << nonsense;
    EXPECT_EQ(mesh.error().kind, ErrorKind::corrupted) << nonsense;
  }
}

}  // namespace
}  // namespace gradwire::bootstrap
