#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace gradwire::cli {

/// The launcher's own stdout or stderr. Buffers output that cannot be written yet: the launcher
/// must never block, or it would miss signals and the end of ranks. The descriptor stays in
/// blocking mode because it may be shared with the shell; each write is small enough for a pipe
/// that polls writable.
class OutputSink {
 public:
  /// Does not own `fd`.
  explicit OutputSink(int fd) : fd_(fd) {}

  void append(std::string_view text);
  std::string& buffer() { return pending_; }

  /// Returns true if so much is buffered that the ranks' output should not be read for now.
  bool full() const { return pending_.size() - written_ > (1 << 20); }
  /// Returns true if nothing is buffered, or the reader is gone.
  bool empty() const { return broken_ || pending_.size() == written_; }

  /// Returns true if the reader is gone or writing failed (error()); appended text is then dropped.
  bool broken() const { return broken_; }

  /// errno of the failed write, such as ENOSPC; 0 if none failed, or if the reader closed the pipe.
  int error() const { return error_; }

  /// Writes as long as the descriptor accepts bytes without blocking.
  void write_some();

  int fd() const { return fd_; }

 private:
  bool writable() const;
  void write_piece();

  int fd_;
  std::string pending_;
  std::size_t written_ = 0;  ///< Bytes of pending_ that have been written.
  bool broken_ = false;
  int error_ = 0;
};

/// Splits a rank's output, read in pieces of any size, into whole lines with a prefix, so that
/// several ranks can share a terminal. A carriage return also ends a line and is kept, so that a
/// progress line keeps overwriting itself.
class LinePrefixer {
 public:
  /// Maximum bytes buffered for an incomplete line; a longer line is split.
  static constexpr std::size_t kMaxLineBytes = 1 << 20;

  /// With an empty prefix, output is still buffered into whole lines.
  explicit LinePrefixer(std::string prefix) : prefix_(std::move(prefix)) {}

  /// Appends the lines completed by `text` to `out`.
  void feed(std::string_view text, std::string& out);

  /// End of stream: appends the incomplete last line, terminated with a newline.
  void finish(std::string& out);

 private:
  void end_line(std::string_view text, char end, std::string& out);

  std::string prefix_;
  std::string line_;       ///< Incomplete line.
  bool after_cr_ = false;  ///< The last line ended in \r: a following \n belongs to it.
};

}  // namespace gradwire::cli
