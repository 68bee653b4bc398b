#include "gradwire/cli/launch/launch.h"

#include <sys/prctl.h>

#include "gradwire/base/clock.h"
#include "gradwire/cli/launch/plan.h"
#include "gradwire/cli/launch/supervisor.h"

namespace gradwire {
namespace {

/// While it lives, processes that lose their parent become this process's children.
class Subreaper {
 public:
  Subreaper() { ::prctl(PR_SET_CHILD_SUBREAPER, 1); }
  ~Subreaper() { ::prctl(PR_SET_CHILD_SUBREAPER, 0); }
  Subreaper(const Subreaper&) = delete;
  Subreaper& operator=(const Subreaper&) = delete;
};

}  // namespace

int launch(const LaunchOptions& options) {
  const Subreaper subreaper;
  const SteadyClock clock;
  return Supervisor(options, plan_job(options), clock).run();
}

}  // namespace gradwire
