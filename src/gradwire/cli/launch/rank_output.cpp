#include "gradwire/cli/launch/rank_output.h"

#include <algorithm>
#include <cerrno>
#include <climits>

#include <poll.h>
#include <unistd.h>

namespace gradwire::cli {

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

void LinePrefixer::end_line(std::string_view text, char end, std::string& out) {
  out += prefix_;
  out += line_;
  out += text;
  out += end;
  line_.clear();
}

void LinePrefixer::feed(std::string_view text, std::string& out) {
  while (!text.empty()) {
    if (after_cr_ && text.front() == '\n') {
      out += '\n';
      text.remove_prefix(1);
      after_cr_ = false;
      continue;
    }
    after_cr_ = false;
    const std::size_t end = text.find_first_of("\r\n");
    if (end == std::string_view::npos) {
      line_ += text;
      if (line_.size() > kMaxLineBytes) end_line({}, '\n', out);
      return;
    }
    end_line(text.substr(0, end), text[end], out);
    after_cr_ = text[end] == '\r';
    text.remove_prefix(end + 1);
  }
}

void LinePrefixer::finish(std::string& out) {
  if (!line_.empty()) end_line({}, '\n', out);
}

}  // namespace gradwire::cli
