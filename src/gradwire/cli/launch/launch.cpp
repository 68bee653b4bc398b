#include "gradwire/cli/launch/launch.h"

#include <sys/prctl.h>

#include "gradwire/base/clock.h"
#include "gradwire/base/error.h"
#include "gradwire/cli/launch/plan.h"
#include "gradwire/cli/launch/supervisor.h"
#include "gradwire/cli/launch/usage_error.h"
#include "gradwire/net/descriptors.h"

namespace gradwire {
namespace {

/// Pipes of the rank's streams, and descriptors that spawning it needs temporarily.
constexpr std::size_t kDescriptorsOfARank = 4;

/// While it lives, this process adopts orphaned descendants (PR_SET_CHILD_SUBREAPER).
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
  JobPlan plan = read_arguments([&] { return plan_job(options); });
  if (const Status enough = allow_descriptors(kDescriptorsOfARank * plan.ranks.size()); !enough) {
    throw Exception(enough.error().kind, enough.error().message);
  }
  return Supervisor(options, std::move(plan), clock).run();
}

}  // namespace gradwire
