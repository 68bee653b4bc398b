#pragma once

#include <algorithm>

#include <gtest/gtest.h>
#include <sys/resource.h>

namespace gradwire::test {

/// Sets the default soft limit of descriptors; code that needs more must raise it itself.
class UsualDescriptors {
 public:
  UsualDescriptors() {
    getrlimit(RLIMIT_NOFILE, &before_);
    rlimit limit = before_;
    limit.rlim_cur = std::min<rlim_t>(1024, limit.rlim_max);
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  }
  ~UsualDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }
  UsualDescriptors(const UsualDescriptors&) = delete;
  UsualDescriptors& operator=(const UsualDescriptors&) = delete;

 private:
  rlimit before_ = {};
};

}  // namespace gradwire::test
