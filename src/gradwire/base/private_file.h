#pragma once

#include <cstddef>
#include <string>

#include "gradwire/base/error.h"

namespace gradwire {

/// A file with a secret, as read by read_private_file().
struct PrivateFile {
  bool exists = false;
  std::string content;  ///< Empty if it does not exist.
};

/// Reads a file that holds a secret, up to `max_bytes`. It must be a regular file, not a link to
/// one, owned by this user, with no permissions for other users. These are checked on the open
/// descriptor before a byte is read, so the file cannot be replaced meanwhile. A FIFO does not
/// block. Fails with refused (what the file is, and what it must be) or system; messages are to
/// follow the file's name.
Result<PrivateFile> read_private_file(const std::string& path, std::size_t max_bytes);

}  // namespace gradwire
