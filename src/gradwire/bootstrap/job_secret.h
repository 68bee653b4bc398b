#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "gradwire/base/error.h"
#include "gradwire/bootstrap/job.h"
#include "gradwire/net/address.h"

namespace gradwire::bootstrap {

/// Returns the secret that all jobs of this user on this host share by default: 64 hexadecimal
/// digits in a file that only the user may read. The file is $XDG_RUNTIME_DIR/gradwire/key or, if
/// that directory does not exist, $XDG_CACHE_HOME/gradwire/key or $HOME/.cache/gradwire/key. The
/// first process that needs it creates it; ranks that start at the same time agree on one. Throws
/// Exception: refused if the file belongs to another user or is readable by others, system if it
/// cannot be read or created.
std::string user_key(const Environment& environment);

/// user_key() with a given path of the file.
std::string user_key_in(const std::string& path);

/// user_key_in() for another use of such a key: `remedy` ends the messages.
std::string private_key_in(const std::string& path, std::string_view remedy);

/// Minimum length of a secret that protects connections over a network. A peer to which a rank
/// connects, and an observer of the packets, gets a proof against which it can test guesses offline
/// (bootstrap/handshake/handshake_messages.h).
inline constexpr std::size_t kMinSecretBytes = 16;

/// Fails with invalid_argument if the secret is shorter, unless `address` is a loopback address,
/// where only processes of this host can connect. An empty secret passes: it means that none is
/// set. The message names `source`, the origin of the secret, and the remedy.
Status check_secret(const std::string& secret, const net::SocketAddress& address,
                    const std::string& source = "GRADWIRE_SECRET");

/// check_secret() for every address of `host`, a name or an address. A name that cannot be resolved
/// passes: connecting to it fails with its own error.
Status check_secret_at(const std::string& secret, const std::string& host,
                       const std::string& source = "GRADWIRE_SECRET");

/// Returns the warning that rank 0 logs if the secret of its job is readable in a launcher's store
/// by any process that reaches the store. Empty if the job has its own secret, or if the store is
/// on the loopback address.
std::string open_store_warning(const Job& job);

/// Logs open_store_warning(), if this is rank 0 and the warning is not empty.
void warn_of_open_store(const Job& job);

}  // namespace gradwire::bootstrap
