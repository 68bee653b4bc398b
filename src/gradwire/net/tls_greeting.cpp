#include "gradwire/net/tls_greeting.h"

#include <fmt/format.h>

#include "gradwire/net/broken_connection.h"
#include "gradwire/net/poll_set.h"

namespace gradwire {
namespace {

Status greet(TlsStream& stream, const std::string& name) {
  const Transfer went = stream.greet();
  if (!went.ended) return {};
  if (!stream.complaint()) {
    return failure(ErrorKind::disconnected, words_of_broken(went.cause, name, {}));
  }
  return failure(ErrorKind::refused,
                 fmt::format("cannot encrypt the connection to {} ({}): a device between the hosts "
                             "changes bytes, or impersonates it",
                             name, *stream.complaint()));
}

}  // namespace

Result<std::vector<std::unique_ptr<TlsStream>>> greet_all(const std::vector<Greeting>& greetings,
                                                          Deadline deadline) {
  std::vector<std::unique_ptr<TlsStream>> streams;
  for (const Greeting& each : greetings) {
    streams.push_back(std::make_unique<TlsStream>(each.socket->descriptor(), each.end, each.key));
  }
  PollSet set;
  for (;;) {
    set.clear();
    const std::string* missing = nullptr;
    for (std::size_t i = 0; i < streams.size(); ++i) {
      if (streams[i]->greeted()) continue;
      if (Status moved = greet(*streams[i], greetings[i].name); !moved) {
        return tl::unexpected<Error>(moved.error());
      }
      if (streams[i]->greeted()) continue;
      set.add(*greetings[i].socket, streams[i]->wanted_events());
      missing = &greetings[i].name;
    }
    if (missing == nullptr) return streams;
    if (deadline.passed()) {
      return failure(ErrorKind::timeout,
                     fmt::format("{} did not complete the TLS handshake in time", *missing));
    }
    set.wait(deadline);
  }
}

}  // namespace gradwire
