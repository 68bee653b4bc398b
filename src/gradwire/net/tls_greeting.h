#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gradwire/base/error.h"
#include "gradwire/net/deadline.h"
#include "gradwire/net/tls_stream.h"

namespace gradwire {

/// A connection that is about to be encrypted.
struct Greeting {
  const Socket* socket = nullptr;
  std::string name;  ///< Of the other end, for messages.
  TlsStream::End end = TlsStream::End::client;
  SessionKey key = {};
};

/// Begins to encrypt all of them at the same time; the other ends do so too. The answer is in their
/// order. Errors: refused (the other end has another key), disconnected, timeout; each names the
/// other end.
Result<std::vector<std::unique_ptr<TlsStream>>> greet_all(const std::vector<Greeting>& greetings,
                                                          Deadline deadline);

}  // namespace gradwire
