#include "gradwire/bootstrap/start.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace gradwire::bootstrap {

Result<std::vector<RankEndpoint>> decode_all(const std::vector<std::string>& endpoints) {
  std::vector<RankEndpoint> all;
  for (const std::string& text : endpoints) {
    GRADWIRE_ASSIGN_OR_RETURN(auto endpoint, decode_rank_endpoint(text));
    all.push_back(std::move(endpoint));
  }
  return all;
}

Error missing_error(const std::vector<Rank>& ranks, const std::vector<std::string>& ended,
                    const std::string& where, Duration timeout) {
  const double seconds = std::chrono::duration<double>(timeout).count();
  if (ranks.empty()) {
    return {ErrorKind::timeout,
            fmt::format("all ranks have joined at {}, but after this rank's timeout of {:.3g} "
                        "s: start them closer together, or raise the timeout",
                        where, seconds)};
  }
  const bool one = ranks.size() == 1;
  if (!ended.empty()) {
    const std::string others = ended.size() == ranks.size()
                                   ? ""
                                   : fmt::format(" (missing: ranks {})", fmt::join(ranks, ", "));
    return {ErrorKind::timeout,
            fmt::format("{} ended before all ranks had joined at {}, and {} not started again "
                        "within {:.3g} s: what {} printed says why{}",
                        fmt::join(ended, ", "), where, ended.size() == 1 ? "was" : "were", seconds,
                        ended.size() == 1 ? "it" : "they", others)};
  }
  return {ErrorKind::timeout,
          fmt::format("{} {} {} not joined at {} within {:.3g} s; {} started, and can {} reach "
                      "that address?",
                      one ? "rank" : "ranks", fmt::join(ranks, ", "), one ? "has" : "have", where,
                      seconds, one ? "is it" : "are they", one ? "it" : "they")};
}

}  // namespace gradwire::bootstrap
