#pragma once

#include <cstddef>
#include <string>

#include "gradwire/base/error.h"

namespace gradwire {

/// A file with a secret, as read_private_file() found it.
struct PrivateFile {
  bool exists = false;
  std::string content;  ///< Empty if it does not exist.
};

/// Reads a file that has a secret in it, up to `most` bytes. It must be a regular file, not a link
/// to one, that belongs to this user and that nobody else may read or write. That is asked of the
/// file that was opened, before a byte is read, so that no other can be put in its place meanwhile;
/// a FIFO does not make it wait. Errors, whose message begins behind the file's name: refused (what
/// the file is, and what it must be), system.
Result<PrivateFile> read_private_file(const std::string& path, std::size_t most);

}  // namespace gradwire
