#include "gradwire/base/fork.h"

#include <optional>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

namespace gradwire::test {
namespace {

struct Pipe {
  Pipe() { EXPECT_EQ(::pipe(ends), 0); }
  ~Pipe() {
    for (const int end : ends) ::close(end);
  }
  int ends[2] = {-1, -1};
};

bool is_pipe(int descriptor) {
  struct stat about = {};
  return ::fstat(descriptor, &about) == 0 && S_ISFIFO(about.st_mode);
}

/// Returns the result of `ask` in a child that is forked now.
template <class Ask>
int in_child(const Ask& ask) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(ask());
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(Fork, GuardedDescriptorsAreClosedInChildren) {
  const Pipe pipe;
  std::optional<CloseOnFork> guard(std::in_place, std::vector{pipe.ends[0], pipe.ends[1]});
  const auto pipes = [&] { return int{is_pipe(pipe.ends[0])} + int{is_pipe(pipe.ends[1])}; };
  EXPECT_EQ(in_child(pipes), 0);
  EXPECT_EQ(pipes(), 2);
  // The numbers stay in use, so that a child's copy of their owner cannot close another's
  // descriptor.
  EXPECT_EQ(in_child([&] { return ::fcntl(pipe.ends[0], F_GETFD) >= 0 ? 1 : 0; }), 1);
  guard.reset();
  EXPECT_EQ(in_child(pipes), 2);
}

TEST(Fork, AGuardKnowsChildrenAndTheirChildren) {
  const ForkGuard guard;
  const auto forked = [&] { return int{guard.in_child()}; };
  EXPECT_EQ(forked(), 0);
  EXPECT_EQ(in_child(forked), 1);
  EXPECT_EQ(in_child([&] { return in_child(forked); }), 1);
  EXPECT_EQ(in_child([] { return int{ForkGuard().in_child()}; }), 0);
}

}  // namespace
}  // namespace gradwire::test
