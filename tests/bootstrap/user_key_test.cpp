#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <sys/stat.h>

#include "gradwire/base/error.h"
#include "gradwire/bootstrap/job_secret.h"
#include "tests/bootstrap/environments.h"
#include "tests/support/temporary_folder.h"

namespace gradwire::bootstrap {
namespace {

using test::environment_of;
using test::job_of;
using test::TemporaryFolder;
using test::Variables;
using test::with;
using ::testing::AllOf;
using ::testing::HasSubstr;

Variables local_job(const std::string& folder) {
  return {{"RANK", "0"},
          {"WORLD_SIZE", "2"},
          {"MASTER_ADDR", "127.0.0.1"},
          {"MASTER_PORT", "29500"},
          {"XDG_RUNTIME_DIR", folder}};
}

TEST(UserKeyTest, RanksOnOneHostShareAKeyFileThatOnlyTheUserReads) {
  const TemporaryFolder folder;
  const std::string secret = job_of(local_job(folder.path())).secret;
  EXPECT_EQ(secret.size(), 64u);
  EXPECT_EQ(job_of(local_job(folder.path())).secret, secret);
  struct stat info {};
  ASSERT_EQ(::stat((folder / "gradwire/key").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0600u);
}

TEST(UserKeyTest, AGivenSecretNeedsNoFile) {
  const TemporaryFolder folder;
  EXPECT_EQ(job_of(with(local_job(folder.path()), {{"GRADWIRE_SECRET", "mine"}})).secret, "mine");
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(UserKeyTest, LiesInTheCacheIfThereIsNoRuntimeFolder) {
  const TemporaryFolder folder;
  const std::string gone = folder / "gone";
  user_key(environment_of({{"XDG_RUNTIME_DIR", gone}, {"HOME", folder.path()}}));
  EXPECT_TRUE(std::filesystem::exists(folder / ".cache/gradwire/key"));
  user_key(environment_of({{"XDG_CACHE_HOME", folder / "c"}, {"HOME", folder.path()}}));
  EXPECT_TRUE(std::filesystem::exists(folder / "c/gradwire/key"));
  EXPECT_THROW(user_key(environment_of({})), Exception);
}

TEST(UserKeyTest, RanksThatStartTogetherAgree) {
  const TemporaryFolder folder;
  const std::string path = folder / "key";
  std::vector<std::string> keys(16);
  std::vector<std::thread> ranks;
  for (std::string& key : keys) ranks.emplace_back([&key, &path] { key = user_key_in(path); });
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(std::set<std::string>(keys.begin(), keys.end()).size(), 1u);
  const auto files = std::filesystem::directory_iterator(folder.path());
  EXPECT_EQ(std::distance(begin(files), end(files)), 1) << "a draft was left behind";
}

std::string refusal_of(const std::string& path) {
  try {
    user_key_in(path);
  } catch (const Exception& e) {
    return e.what();
  }
  return "no error";
}

TEST(UserKeyTest, RefusesAFileThatOthersMayRead) {
  const TemporaryFolder folder;
  const std::string path = folder / "key";
  user_key_in(path);
  ASSERT_EQ(::chmod(path.c_str(), 0640), 0);
  EXPECT_THAT(refusal_of(path), AllOf(HasSubstr(path), HasSubstr("640"), HasSubstr("remove it")));
}

TEST(UserKeyTest, RefusesLinksFoldersAndTruncatedFiles) {
  const TemporaryFolder folder;
  const std::string path = folder / "key";
  std::filesystem::create_symlink("/etc/hostname", path);
  EXPECT_THAT(refusal_of(path), AllOf(HasSubstr("symbolic link"), HasSubstr("GRADWIRE_SECRET")));
  std::filesystem::remove(path);
  std::filesystem::create_directory(path);
  EXPECT_THAT(refusal_of(path), HasSubstr("must be a file of user"));
  std::filesystem::remove(path);
  std::ofstream(path) << "abc";
  ASSERT_EQ(::chmod(path.c_str(), 0600), 0);
  EXPECT_THAT(refusal_of(path), HasSubstr("too short"));
}

}  // namespace
}  // namespace gradwire::bootstrap
