#include "gradwire/bootstrap/job_secret.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/bootstrap/warnings.h"
#include "tests/support/host.h"
#include "tests/support/start_jobs.h"

namespace gradwire::bootstrap {
namespace {

using std::chrono::seconds;
using test::connect_all;
using test::free_port;
using test::job_of;
using test::whole_job;
using test::within;
using testing::AllOf;
using testing::HasSubstr;

/// An address that no host has (RFC 5737): connecting to it fails or times out.
constexpr const char* kElsewhere = "192.0.2.1";

Status checked(std::size_t characters, const char* address) {
  return check_secret(std::string(characters, 'x'), *net::SocketAddress::of(address, 0));
}

TEST(JobSecret, ShortOnesPassOnTheLoopbackAlone) {
  for (const char* address : {"127.0.0.1", "127.4.5.6", "::1"}) EXPECT_TRUE(checked(1, address));
  for (const char* address : {kElsewhere, "10.0.0.1", "2001:db8::1"}) {
    EXPECT_FALSE(checked(1, address)) << address;
    EXPECT_FALSE(checked(15, address)) << address;
    EXPECT_TRUE(checked(16, address)) << address;
    EXPECT_TRUE(checked(0, address)) << "it is none";
  }
}

TEST(JobSecret, TheRefusalNamesLengthPlaceAndRemedy) {
  const Status status =
      check_secret("guess", *net::SocketAddress::of(kElsewhere, 0), "--secret-file");
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().kind, ErrorKind::invalid_argument);
  EXPECT_THAT(status.error().message,
              AllOf(HasSubstr("--secret-file has 5 characters"), HasSubstr(kElsewhere),
                    HasSubstr("need 16 or more"), HasSubstr("gradwire run"),
                    HasSubstr("openssl rand -hex 16")));
  EXPECT_THAT(status.error().message, testing::Not(HasSubstr("guess:"))) << "not the secret itself";
}

TEST(JobSecret, NamesAreResolved) {
  EXPECT_TRUE(check_secret_at("guess", "localhost"));
  EXPECT_FALSE(check_secret_at("guess", kElsewhere));
  EXPECT_TRUE(check_secret_at("guess", "no such host")) << "who connects there says so";
}

TEST(JobSecret, RanksOfTheLoopbackMeetWithAShortOne) {
  auto jobs = whole_job(2, free_port());
  for (Job& job : jobs) job.secret = "a";
  auto meshes = connect_all(jobs, within(seconds(30)));
  test::expect_connected(meshes);
}

TEST(JobSecret, RanksElsewhereAreRefusedAtOnce) {
  for (const Rank rank : {0, 1}) {
    Job job = job_of(rank, 2, free_port());
    job.master_address = kElsewhere;
    job.secret = "guess";
    const auto mesh = connect(test::kNetwork, job, within(seconds(30)));
    ASSERT_FALSE(mesh);
    EXPECT_EQ(mesh.error().kind, ErrorKind::invalid_argument);
    EXPECT_THAT(mesh.error().message, HasSubstr("GRADWIRE_SECRET has 5 characters"));
  }
}

Job in_launchers_store(const std::string& master) {
  Job job = job_of(0, 2, 29500);
  job.secret.clear();
  job.launcher_store = true;
  job.master_address = master;
  return job;
}

TEST(OpenStore, IsReportedOffTheLoopbackWithTheRemedy) {
  EXPECT_THAT(open_store_warning(in_launchers_store("node1")),
              AllOf(HasSubstr("node1:29500"), HasSubstr("GRADWIRE_SECRET=$(openssl rand -hex 16)"),
                    HasSubstr("gradwire run")));
}

TEST(OpenStore, IsNotReportedOnTheLoopbackWithASecretOrAlone) {
  EXPECT_EQ(open_store_warning(in_launchers_store("127.0.0.1")), "");
  EXPECT_EQ(open_store_warning(in_launchers_store("localhost")), "");
  Job job = in_launchers_store("node1");
  job.secret = "the secret of this test";
  EXPECT_EQ(open_store_warning(job), "");
  job = in_launchers_store("node1");
  job.world_size = 1;
  EXPECT_EQ(open_store_warning(job), "");
  job = in_launchers_store("node1");
  job.launcher_store = false;
  EXPECT_EQ(open_store_warning(job), "") << "the store is ours, and asks who comes";
}

std::string warning_for(const Job& job) {
  const Warnings warnings;
  warn_of_open_store(job);
  return warnings.text();
}

TEST(OpenStore, IsReportedByRankZeroOnly) {
  Job job = in_launchers_store("node1");
  EXPECT_THAT(warning_for(job), HasSubstr(open_store_warning(job)));
  job.rank = 1;
  EXPECT_EQ(warning_for(job), "");
  job = in_launchers_store("127.0.0.1");
  EXPECT_EQ(warning_for(job), "");
}

}  // namespace
}  // namespace gradwire::bootstrap
