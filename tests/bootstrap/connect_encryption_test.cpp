#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/bootstrap/connect.h"
#include "tests/support/start_jobs.h"

namespace gradwire::bootstrap {
namespace {

using test::connect_all;
using test::expect_connected;
using test::free_port;
using test::whole_job;
using testing::AllOf;
using testing::HasSubstr;

std::vector<Job> encrypted_job(int ranks) {
  auto jobs = whole_job(ranks, free_port());
  for (Job& job : jobs) {
    job.encryption = true;
    job.shared_memory = false;
  }
  return jobs;
}

TEST(RendezvousEncryption, EncryptsWhatGoesOverTheNetwork) {
  auto jobs = encrypted_job(4);
  jobs[0].shared_memory = jobs[1].shared_memory = true;
  auto meshes = connect_all(jobs);
  expect_connected(meshes);
  // An encrypted stream needs no checksums, and neither does shared memory.
  for (auto& mesh : meshes) {
    for (Rank to = 0; to < 4; ++to) {
      if (to != &mesh - meshes.data()) {
        EXPECT_FALSE(mesh->transport->needs_checksums({to, 0}));
      }
    }
  }
  EXPECT_TRUE(meshes[0]->transport->reads_in_place({1, 0}));
  EXPECT_FALSE(meshes[0]->transport->reads_in_place({2, 0}));
}

TEST(RendezvousEncryption, EveryRankLearnsThatOneDoesNotEncrypt) {
  auto jobs = encrypted_job(3);
  jobs[2].encryption = false;
  for (const auto& mesh : connect_all(jobs)) {
    ASSERT_FALSE(mesh);
    EXPECT_EQ(mesh.error().kind, ErrorKind::mismatch);
    EXPECT_THAT(mesh.error().message, AllOf(HasSubstr("rank 0 (host"), HasSubstr("rank 2 (host"),
                                            HasSubstr("GRADWIRE_ENCRYPTION")));
  }
}

}  // namespace
}  // namespace gradwire::bootstrap
