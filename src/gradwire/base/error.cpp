#include "gradwire/base/error.h"

namespace gradwire {

std::string_view name_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::invalid_argument:
      return "invalid argument";
    case ErrorKind::mismatch:
      return "mismatch";
    case ErrorKind::disconnected:
      return "disconnected";
    case ErrorKind::timeout:
      return "timeout";
    case ErrorKind::refused:
      return "refused";
    case ErrorKind::corrupted:
      return "corrupted";
    case ErrorKind::unsupported:
      return "unsupported";
    case ErrorKind::system:
      return "system";
    case ErrorKind::aborted:
      return "aborted";
  }
  return "unknown";
}

}  // namespace gradwire
