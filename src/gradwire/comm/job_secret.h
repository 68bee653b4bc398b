#pragma once

#include <cstddef>
#include <string>

#include "gradwire/base/error.h"
#include "gradwire/comm/job.h"
#include "gradwire/net/address.h"

namespace gradwire {

/// The shortest secret that protects connections over a network. Whoever a rank connects to, and
/// whoever reads the packets, gets a proof on which to try guesses (net/handshake_messages.h).
inline constexpr std::size_t kLeastSecretBytes = 16;

/// Refuses a secret that is shorter, unless `address` is one of the loopback, where only this
/// host's processes can connect. An empty one is none, and passes. Error: invalid_argument, which
/// names `source`, where the secret comes from, and the remedy.
Status check_secret(const std::string& secret, const SocketAddress& address,
                    const std::string& source = "GRADWIRE_SECRET");

/// The same for every address that `host`, a name or an address, has. A name that cannot be
/// resolved passes: whoever connects there says so.
Status check_secret_at(const std::string& secret, const std::string& host,
                       const std::string& source = "GRADWIRE_SECRET");

/// What rank 0 of a job should say where the secret that protects its connections will lie in a
/// launcher's store, which anybody who reaches it can read; empty where that is no news: the job
/// has a secret of its own, or the store is at the loopback.
std::string open_store_warning(const Job& job);

/// Logs that warning, if this is rank 0 and there is one.
void warn_of_open_store(const Job& job);

}  // namespace gradwire
