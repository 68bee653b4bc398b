#include "gradwire/comm/failure_text.h"

#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace gradwire {
namespace {

double seconds(Duration duration) {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace

Error failure_of(const Operation& operation, const Error& cause) {
  const char* buffer = operation.request().input_survives
                           ? "the input is intact"
                           : "the contents of the output buffer are undefined";
  return {cause.kind,
          fmt::format("{} failed: {}; {}", operation.describe(), cause.message, buffer)};
}

Error after_failure(const Error& cause) {
  return {ErrorKind::aborted,
          "the communicator is unusable since an earlier error; make a new one (earlier error: " +
              cause.message + "); nothing was done with the buffer"};
}

std::string disagreement(const std::string& peer, const Fingerprint& theirs, Rank self,
                         const Operation& ours) {
  if (theirs == ours.fingerprint()) {
    return fmt::format("{} takes part in {}, which needs nothing of it", peer, ours.describe());
  }
  return fmt::format(
      "ranks disagree about operation #{}: {} calls {}, rank {} calls {}; every rank must call the "
      "same operations in the same order with the same sizes and types",
      ours.key().sequence, peer, theirs.describe(), self, ours.fingerprint().describe());
}

std::string left_during(const std::string& peer, const Operation& operation) {
  return fmt::format("{} left the job without taking part in {}", peer, operation.describe());
}

std::string lost_during(const std::string& what, const Operation* operation) {
  return operation == nullptr ? what : fmt::format("{} during {}", what, operation->describe());
}

std::string overdue(const Flight& flight, const Transport& transport) {
  const Operation& operation = flight.operation;
  std::vector<std::string> absent;
  std::vector<std::string> slow;
  for (std::size_t i = 0; i < flight.announced.size(); ++i) {
    const Rank peer = operation.program().exchanges[i].peer;
    if (!flight.announced[i]) {
      absent.push_back(transport.describe(peer));
    } else if (operation.needs(peer)) {
      slow.push_back(transport.describe(peer));
    }
  }
  const std::string late =
      fmt::format("{} was not complete within its timeout of {} s: ", operation.describe(),
                  seconds(operation.request().timeout));
  if (!absent.empty()) return late + fmt::format("{} has not called it", fmt::join(absent, ", "));
  return late + fmt::format("waiting for {}", fmt::join(slow, ", "));
}

std::string silent(const std::string& peer, Duration timeout) {
  return fmt::format("nothing has come from {} for {} s: its host, its process or its link is dead",
                     peer, seconds(timeout));
}

std::string reported_by(Rank origin, const std::string& text) {
  return fmt::format("{} (reported by rank {})", text, origin);
}

}  // namespace gradwire
