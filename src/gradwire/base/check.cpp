#include "gradwire/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace gradwire::detail {

void check_failed(const char* condition, const char* file, int line) {
  std::fprintf(stderr,
               "gradwire: invariant broken (a bug in gradwire, please report it): %s, %s:%d\n",
               condition, file, line);
  std::abort();
}

}  // namespace gradwire::detail
