#include "gradwire/engine/failure_text.h"

#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gradwire/base/clock.h"

namespace gradwire::engine {
namespace {

const char* state_of_buffer(const OperationRequest& request) {
  return request.input_survives ? "the input is intact"
                                : "the contents of the output buffer are undefined";
}

std::string describe(const Fingerprint& message) {
  return fmt::format("{} {}", message.count, name_of(message.type));
}

/// "receive from any rank of 10 float32, tag 3".
std::string describe(const OperationRequest& receive) {
  return fmt::format("receive from {} of {}, tag {}",
                     receive.program_from ? "any rank" : "the rank itself",
                     describe(receive.fingerprint), receive.tag);
}

}  // namespace

Error failure_of(const Operation& operation, const Error& cause) {
  return {cause.kind, fmt::format("{} failed: {}; {}", operation.describe(), cause.message,
                                  state_of_buffer(operation.request()))};
}

Error failure_of(const OperationRequest& receive, const Error& cause) {
  return {cause.kind, fmt::format("{} failed: {}; {}", describe(receive), cause.message,
                                  state_of_buffer(receive))};
}

Error after_failure(const Error& cause) {
  return {ErrorKind::aborted,
          "the communicator is unusable after an earlier error; create a new one (earlier error: " +
              cause.message + "); the buffer was not touched"};
}

Error after_failure(Rank peer, const Error& cause) {
  return {ErrorKind::aborted,
          fmt::format("no message can be exchanged with rank {} after an earlier error ({}); the "
                      "buffer was not touched",
                      peer, cause.message)};
}

std::string mismatch_text(const std::string& peer, Rank peer_rank, const Fingerprint& theirs,
                          Rank self, const InFlightOperation& ours) {
  const Fingerprint mine = ours.fingerprint_for(peer_rank);
  if (theirs.from_there() == mine) {
    return fmt::format("{} announced {}, but no message is scheduled between it and this rank",
                       peer, ours.operation.describe());
  }
  const OperationKey key = ours.operation.key();
  std::string lane =
      key.is_message() || key.channel == 0 ? "" : fmt::format(" of lane {}", key.channel);
  if (key.group > 0) lane += fmt::format(" of subgroup {}", key.group);
  return fmt::format(
      "ranks disagree about operation #{}{}: {} calls {}, rank {} calls {}; every rank must call "
      "the same operations in the same order with the same sizes and types",
      key.sequence, lane, peer, theirs.describe(), self, mine.describe());
}

std::string self_mismatch_text(Rank self, const Fingerprint& sent,
                               const OperationRequest& receive) {
  return fmt::format("rank {} sent itself {} with tag {}, but receives {}", self, describe(sent),
                     receive.tag, describe(receive.fingerprint));
}

std::string departure_text(const std::string& peer, const std::string& failure,
                           const Operation& operation) {
  if (!failure.empty()) {
    return fmt::format("{} left the job {}; {} needs it", peer, failure, operation.describe());
  }
  return fmt::format("{} left the job before its part in {} was complete", peer,
                     operation.describe());
}

std::string no_sender_text(const OperationRequest& receive) {
  return fmt::format("every other rank left the job before the {}", describe(receive));
}

std::string disconnect_text(const std::string& what, const Operation* operation) {
  return operation == nullptr ? what : fmt::format("{} during {}", what, operation->describe());
}

std::string timeout_text(const InFlightOperation& flight, const net::Transport& transport) {
  const Operation& operation = flight.operation;
  std::vector<std::string> absent;
  std::vector<std::string> slow;
  for (std::size_t i = 0; i < flight.peer_states.size(); ++i) {
    const Rank peer = operation.program().exchanges[i].peer;
    if (!flight.peer_states[i].announced) {
      absent.push_back(transport.describe({peer, 0}));
    } else if (operation.needs(peer)) {
      slow.push_back(transport.describe({peer, 0}));
    }
  }
  const std::string late =
      fmt::format("{} was not complete within its timeout of {} s: ", operation.describe(),
                  seconds(operation.request().timeout));
  if (!absent.empty()) return late + fmt::format("{} has not called it", fmt::join(absent, ", "));
  return late + fmt::format("waiting for {}", fmt::join(slow, ", "));
}

std::string receive_timeout_text(const OperationRequest& receive) {
  return fmt::format("{} was not complete within its timeout of {} s: {} a message with this tag",
                     describe(receive), seconds(receive.timeout),
                     receive.program_from ? "no rank has sent" : "the rank has not sent itself");
}

std::string silence_text(const std::string& peer, Duration timeout) {
  return fmt::format("nothing received from {} for {} s: its host, process or link is dead", peer,
                     seconds(timeout));
}

std::string reported_by(Rank origin, const std::string& text) {
  return fmt::format("{} (reported by rank {})", text, origin);
}

}  // namespace gradwire::engine
