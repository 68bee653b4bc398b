#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "gradwire/net/frame.h"

namespace gradwire::fuzz {

/// Frames as a peer would send them over one stream.
class FrameStream {
 public:
  void add(FrameHeader header, std::string_view payload);
  const std::string& text() const { return text_; }

 private:
  std::string text_;
  std::uint64_t frames_ = 0;
};

/// Makes one frame after the other out of what is there, whatever it is: with magic, version,
/// number (from `first` on) and checksums as they must be, and a length that fits. Returns the
/// number after the last.
std::uint64_t seal_frames(std::span<char> stream, std::uint64_t first);

}  // namespace gradwire::fuzz
