#include "gradwire/cli/launch/output_sink.h"

#include <algorithm>
#include <cerrno>
#include <climits>

#include <poll.h>
#include <unistd.h>

namespace gradwire {

void OutputSink::append(std::string_view text) {
  if (!broken_) pending_ += text;
}

bool OutputSink::writable() const {
  pollfd item{fd_, POLLOUT, 0};
  return ::poll(&item, 1, 0) > 0;
}

void OutputSink::write_piece() {
  // A pipe that polls writable has room for PIPE_BUF bytes.
  const std::size_t size = std::min<std::size_t>(pending_.size() - written_, PIPE_BUF);
  const ssize_t wrote = ::write(fd_, pending_.data() + written_, size);
  if (wrote > 0) {
    written_ += static_cast<std::size_t>(wrote);
  } else if (wrote < 0 && errno != EINTR && errno != EAGAIN) {
    broken_ = true;
    if (errno != EPIPE) error_ = errno;
  }
  if (broken_) written_ = pending_.size();
  if (empty() || full()) {
    pending_.erase(0, written_);
    written_ = 0;
  }
}

void OutputSink::write_some() {
  while (!empty() && writable()) write_piece();
}

}  // namespace gradwire
