#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "gradwire/federated/remote/identity.h"
#include "tests/cli/launched.h"
#include "tests/support/temporary_folder.h"

/// `gradwire federate`, as the real program.
namespace gradwire::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

struct FederateCommand : ::testing::Test {
  int enrol(const std::string& arguments) {
    gradwire::test::Launched launched(
        {"/bin/sh", "-c",
         fmt::format("umask 022; '{}' federate enrol '{}' {}", gradwire::test::gradwire_program(),
                     key.string(), arguments)});
    const int status = launched.wait();
    out = launched.out();
    err = launched.err();
    return status;
  }

  gradwire::test::TemporaryFolder folder;
  std::filesystem::path key = folder / "server.key";
  std::string out, err;
};

TEST_F(FederateCommand, EnrolsAClientWhoseFileIsPrivate) {
  const std::string file = (folder / "phone.json").string();
  ASSERT_EQ(enrol("--client phone-17 --server head:29500 > " + file), 0) << err;
  struct stat info {};
  ASSERT_EQ(::stat(file.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  const auto identity = federated::read_identity(file);
  ASSERT_TRUE(identity) << identity.error().message;
  EXPECT_EQ(identity->name, "phone-17");
  EXPECT_EQ(identity->server, "head:29500");
}

TEST_F(FederateCommand, ListsAndRevokes) {
  ASSERT_EQ(enrol("--client one"), 0) << err;
  ASSERT_EQ(enrol("--client two"), 0) << err;
  ASSERT_EQ(enrol("--revoke one"), 0) << err;
  ASSERT_EQ(enrol("--list"), 0) << err;
  EXPECT_THAT(out, HasSubstr("1 two"));
  EXPECT_THAT(out, Not(HasSubstr("one")));
  EXPECT_EQ(enrol("--revoke one"), 2);
  EXPECT_THAT(err, HasSubstr("no client is enrolled as \"one\""));
}

TEST_F(FederateCommand, RefusesWhatItCannotDo) {
  EXPECT_EQ(enrol("--list"), 2);
  EXPECT_THAT(err, HasSubstr("there is no server key"));
  EXPECT_EQ(enrol(""), 2);
  EXPECT_EQ(enrol("--client 'a b'"), 2);
  EXPECT_THAT(err, HasSubstr("a client's name has"));
  EXPECT_EQ(enrol("--client one > /dev/full"), 1);
  ASSERT_EQ(::chmod(key.c_str(), 0644), 0);
  EXPECT_EQ(enrol("--list"), 1);
  EXPECT_THAT(err, HasSubstr("mode 644"));
}

}  // namespace
}  // namespace gradwire::cli
