#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace gradwire {

/// The launcher's own stdout or stderr. What cannot be written yet waits here, as the launcher must
/// never block: it would miss signals and the end of ranks. The descriptor is left in blocking
/// mode, because it may be shared with the shell; instead each write is small enough for a pipe
/// that polls writable.
class OutputSink {
 public:
  /// Does not own `fd`.
  explicit OutputSink(int fd) : fd_(fd) {}

  void append(std::string_view text);
  std::string& buffer() { return pending_; }

  /// Enough waits for the reader: take no more from the ranks for now.
  bool full() const { return pending_.size() - written_ > (1 << 20); }
  /// Nothing waits for the reader, or there is none.
  bool empty() const { return broken_ || pending_.size() == written_; }

  /// Nobody reads any more, or error(); what is appended is lost.
  bool broken() const { return broken_; }

  /// Why it could not be written, such as ENOSPC; 0 if it could, or its reader went away.
  int error() const { return error_; }

  /// Writes while the descriptor takes it at once.
  void write_some();

  int fd() const { return fd_; }

 private:
  bool writable() const;
  void write_piece();

  int fd_;
  std::string pending_;
  std::size_t written_ = 0;  ///< How much of pending_ has been written.
  bool broken_ = false;
  int error_ = 0;
};

}  // namespace gradwire
